//! The console's commands, carried out on the workers.

mod audit;
mod console;
mod metrics;
mod operator_commands;
mod show;
mod worker_round;
