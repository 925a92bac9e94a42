//! Programs that a process starts and that must not outlive it.

#![expect(unsafe_code, reason = "code that runs between fork and exec has no safe form")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{self, Command};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// Makes the kernel kill the program when the thread that starts it ends, however this process ends. The thread has to
/// live as long as the program is needed. The kernel does not kill a program that gets other rights as it starts: by
/// `setuid`, by capabilities of its file, or by a change of its security context. The process is forked to start the
/// program, so under a strict limit on memory (`vm.overcommit_memory=2`) a large process may fail to start one.
pub fn end_with_parent(command: &mut Command) {
    let parent = process::id();
    let set = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // A parent that died before the call sends no signal.
        match getppid() {
            Some(now) if now.as_raw_nonzero().get().unsigned_abs() == parent => Ok(()),
            _ => Err(io::Error::from(rustix::io::Errno::SRCH)),
        }
    };
    // SAFETY: between fork and exec this makes two system calls. It allocates nothing, and takes no lock.
    unsafe { command.pre_exec(set) };
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::thread;

    use super::*;

    #[test]
    fn a_program_ends_with_the_thread_that_started_it() {
        let started = thread::spawn(|| {
            let mut command = Command::new("sleep");
            end_with_parent(&mut command);
            command.arg("60").spawn().unwrap()
        });
        let mut child = started.join().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
    }
}
