//! Durability: crashes, power loss, failing disks, flipped bits, and what a start reads back.

mod code_filter;
mod crash;
mod damage;
mod data_dir;
mod disk_faults;
mod flips;
mod image;
mod loading;
mod power_loss;
mod stored_fleets;
