//! Commands of the console are carried out on the workers.

mod console;
mod metrics;
mod orders;
mod show;
mod tour;
