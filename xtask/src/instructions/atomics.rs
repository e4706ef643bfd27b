//! Atomic instructions, by which threads share memory: locks, counters, and the owners of an `Arc`. callgrind counts
//! how often each address was executed, and objdump tells which addresses have such an instruction.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    process::Command,
};

use crate::stage::StageError;

/// The addresses of atomic instructions in a program.
#[derive(Debug)]
pub(super) struct AtomicInstructions {
    program: PathBuf,
    addresses: HashSet<u64>,
}

impl AtomicInstructions {
    /// Reads the code of a program. Only the instructions of x86-64 are known; on other machines, none are counted.
    ///
    /// # Errors
    /// objdump is missing, or does not know the file.
    pub(super) fn of(program: &Path) -> Result<Self, StageError> {
        if !cfg!(target_arch = "x86_64") {
            let addresses = HashSet::new();
            let program = program.to_owned();
            return Ok(Self { program, addresses });
        }
        let output = Command::new("objdump")
            .args(["--disassemble", "--no-show-raw-insn"])
            .arg(program)
            .output();
        let output = output.map_err(|e| {
            let next = "install the package binutils";
            StageError::with_next(format!("cannot run objdump: {e}"), next)
        })?;
        let code = String::from_utf8_lossy(&output.stdout);
        let addresses: HashSet<_> = code.lines().filter_map(atomic_address).collect();
        if addresses.is_empty() {
            return Err(StageError::new(format!(
                "objdump finds no atomic instruction in {}",
                program.display()
            )));
        }
        let program = program.to_owned();
        Ok(Self { program, addresses })
    }

    /// Returns how many of them were executed, by callgrind's file.
    pub(super) fn executed(&self, callgrind: &str) -> u64 {
        let mut reader = Reader::default();
        let mut executed = 0;
        for line in callgrind.lines() {
            if let Some((address, count)) = reader.read(line, &self.program)
                && self.addresses.contains(&address)
            {
                executed += count;
            }
        }
        executed
    }
}

/// Returns the address, if the line of objdump has an atomic instruction: one with the prefix `lock`, or an exchange with
/// memory, which needs no prefix.
fn atomic_address(line: &str) -> Option<u64> {
    let (address, instruction) = line.split_once(':')?;
    let instruction = instruction.trim_start();
    let is_exchange = || instruction.starts_with("xchg") && instruction.contains('(');
    if !instruction.starts_with("lock ") && !is_exchange() {
        return None;
    }
    u64::from_str_radix(address.trim_start(), 16).ok()
}

/// Reads the lines of callgrind's file, in which names and addresses are abbreviated.
#[derive(Debug, Default)]
struct Reader {
    objects: HashMap<String, PathBuf>,
    /// The number of the object to which the lines belong.
    object: String,
    address: u64,
    /// Whether the next line has the cost of a call, which is that of the lines of the function called.
    is_call: bool,
}

impl Reader {
    /// Returns the address and the count of a line, if it is one of the program's own.
    fn read(&mut self, line: &str, program: &Path) -> Option<(u64, u64)> {
        if let Some(object) = line.strip_prefix("ob=") {
            self.object = self.name(object);
            return None;
        }
        if let Some(object) = line.strip_prefix("cob=") {
            self.name(object);
            return None;
        }
        if line.starts_with("calls=") {
            self.is_call = true;
            return None;
        }
        let mut fields = line.split(' ');
        let address = self.address_of(fields.next()?)?;
        self.address = address;
        if std::mem::take(&mut self.is_call) {
            return None;
        }
        let count = fields.nth(1)?.parse().ok()?;
        let is_own = self
            .objects
            .get(&self.object)
            .is_some_and(|at| at == program);
        is_own.then_some((address, count))
    }

    /// Notes the object of `(7) /path`; of a known one, the file has only `(7)`. Returns the number.
    fn name(&mut self, object: &str) -> String {
        let (number, path) = object.split_once(' ').unwrap_or((object, ""));
        if !path.is_empty() {
            self.objects.insert(number.to_owned(), path.into());
        }
        number.to_owned()
    }

    /// Returns the address of `0x12ab`, or of `+3`, `-3` or `*`, which are relative to the line before.
    fn address_of(&self, field: &str) -> Option<u64> {
        if let Some(hexadecimal) = field.strip_prefix("0x") {
            return u64::from_str_radix(hexadecimal, 16).ok();
        }
        if let Some(more) = field.strip_prefix('+') {
            return self.address.checked_add(more.parse().ok()?);
        }
        if let Some(less) = field.strip_prefix('-') {
            return self.address.checked_sub(less.parse().ok()?);
        }
        (field == "*").then_some(self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_and_exchanges_with_memory_are_atomic() {
        for (line, is_atomic) in [
            ("  12ab:\tlock cmpxchg %cl,0x48(%r15)", true),
            ("  12ab:\txchg   %eax,0x8(%rdi)", true),
            ("  12ab:\txchg   %ax,%ax", false),
            ("  12ab:\tmov    %rax,0x8(%rdi)", false),
            ("00000000000012ab <lock >:", false),
            ("", false),
        ] {
            let expected = is_atomic.then_some(0x12ab);
            assert_eq!(atomic_address(line), expected, "{line}");
        }
    }

    #[test]
    fn only_own_lines_of_the_program_count() {
        let text = "\
events: Ir
ob=(1) /bin/pgweir
fn=(1) run
0x100 7 5
+4 * 6
cob=(2) /lib/libc.so.6
cfn=(2) free
calls=9 0x200 0
* * 1000
-4 +1 7
ob=(2)
fn=(2)
0x104 0 100
ob=(1)
fn=(1)
+0 3 2
";
        let code = AtomicInstructions {
            program: "/bin/pgweir".into(),
            addresses: [0x104].into(),
        };
        assert_eq!(code.executed(text), 6 + 2);
    }
}
