//! Appends numbers to log lines in fewer instructions than `format!`. Each login writes such lines.

/// Appends a number in decimal.
pub fn push_decimal(text: &mut String, number: u64) {
    push_digits::<10>(text, number);
}

/// Appends a number in hexadecimal, in lower case.
pub fn push_hexadecimal(text: &mut String, number: u64) {
    push_digits::<16>(text, number);
}

fn push_digits<const BASE: u64>(text: &mut String, number: u64) {
    // `u64::MAX` has 20 decimal digits.
    let mut digits = [0; 20];
    let mut rest = number;
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b"0123456789abcdef"[(rest % BASE) as usize];
        rest /= BASE;
        if rest == 0 {
            break;
        }
    }
    text.extend(digits[at..].iter().map(|&digit| char::from(digit)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_standard_library() {
        for number in [0, 7, 10, 255, 4_096, 1_234_567_890, u64::MAX] {
            let (mut decimal, mut hexadecimal) = (String::new(), String::new());
            push_decimal(&mut decimal, number);
            push_hexadecimal(&mut hexadecimal, number);
            assert_eq!(decimal, number.to_string());
            assert_eq!(hexadecimal, format!("{number:x}"));
        }
    }
}
