//! The console's commands, carried out on the workers.

mod console;
mod metrics;
mod operator_commands;
mod show;
mod worker_round;
