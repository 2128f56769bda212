//! The start of a node's cores, from the parts that all of them share.

use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use carom_shards::{Code, CodeHasher, CoreCount, CoreId};

use super::listeners::Bound;
use super::signals::{ProcessEvent, forward_events};
use super::supervisor::thread_exit;
use crate::api::{self, Site};
use crate::bridge::handle::{FreshCodes, NodeContext, Recorders};
use crate::bridge::{Mailbox, Mailboxes, ToCore};
use crate::core::bypass::BypassParts;
use crate::core::{self, CoreParts, MemoryBudget, UnstartedCores};
use crate::services::ids::CodeSource;
use carom_limits::ConnectionLimits;
use carom_model::clients::forwarded::Trust;
use carom_settings::exit::Exit;
use carom_settings::{Residency, Settings};
use carom_tls::identity::TlsIdentity;

/// The receiving ends that cores take over: listeners, doorbells and mailboxes, in the order of the cores.
pub(super) struct CoreEnds {
    pub(super) bound: Bound,
    pub(super) bells: Vec<File>,
    pub(super) mail: Vec<Receiver<ToCore>>,
}

/// The parts that all cores share.
pub(super) struct CorePlan<'a> {
    pub(super) limits: ConnectionLimits,
    pub(super) admin_limits: ConnectionLimits,
    pub(super) identity: Option<TlsIdentity>,
    pub(super) settings: &'a Settings,
    pub(super) events: Sender<ProcessEvent>,
    pub(super) context: NodeContext,
    pub(super) site: Arc<Site>,
    pub(super) hasher: CodeHasher,
    pub(super) cores: CoreCount,
    pub(super) trust: Arc<Trust>,
    /// The recorders of each core, the admin listener's last.
    pub(super) recorders: Vec<Recorders>,
}

impl CorePlan<'_> {
    /// Starts the cores, and the one of the admin listener last. The first cores get the datapaths past the kernel's
    /// TCP.
    ///
    /// # Errors
    /// If the operating system cannot start a thread.
    pub(super) fn start_all(
        self,
        CoreEnds { bound, bells, mail }: CoreEnds,
        sources: Vec<CodeSource>,
        bypass: Vec<BypassParts>,
    ) -> Result<Vec<core::executor::CoreHandle>, Exit> {
        let mut unstarted = UnstartedCores::new(self.cores, self.hasher);
        let listeners = bound.public.into_iter().chain([bound.admin]);
        let codes = sources.into_iter().map(Some).chain([None]);
        let cpus = self.settings.cores.cpus.iter().map(|&cpu| Some(cpu)).chain([None]);
        let core_events = forward_events(self.events.clone())?;
        let mut running = Vec::new();
        let mut recorders = self.recorders.into_iter();
        let mut bypass = bypass.into_iter();
        for (index, ((((listeners, bell), mail), codes), cpu)) in
            listeners.zip(bells).zip(mail).zip(codes).zip(cpus).enumerate()
        {
            self.context.cores[index].cpu.set(cpu.unwrap_or_default() as u64);
            let is_admin = codes.is_none();
            let site = Arc::clone(&self.site);
            let parts = CoreParts {
                core: CoreId(index as u16),
                cpu,
                listeners,
                bypass: bypass.next().filter(|_| !is_admin),
                // Requests to the admin listener come through no proxy.
                trust: if is_admin { Arc::default() } else { Arc::clone(&self.trust) },
                bell,
                mail,
                context: self.context.clone(),
                memory_budget: match self.settings.residency {
                    #[cfg(feature = "faults")]
                    _ if crate::services::faults::Faults::from_env().little_memory => MemoryBudget::Tiny,
                    Residency::All => MemoryBudget::All,
                    Residency::Hot { memory_limit } => {
                        let of_core = memory_limit / self.cores.get() as u64;
                        if self.settings.home.is_shared() {
                            MemoryBudget::Shared(of_core)
                        } else {
                            MemoryBudget::Bytes(of_core)
                        }
                    }
                },
                limits: if is_admin { self.admin_limits } else { self.limits },
                identity: self.identity.clone(),
                hsts: self.settings.tls.hsts,
                codes: Box::new(CodeQueue(codes)),
                recorders: recorders.next().unwrap_or_default(),
                service: Box::new(move |handle| {
                    if is_admin { api::admin::service(handle, site) } else { api::public::service(handle, site) }
                }),
                events: core_events.clone(),
                #[cfg(feature = "faults")]
                stall_file: crate::services::faults::Faults::from_env().stall_file(&self.settings.data_dir, index),
            };
            running.push(
                core::start(unstarted.next(parts)).map_err(|error| thread_exit(&format!("core {index}"), &error))?,
            );
        }
        Ok(running)
    }
}

type Mail = (Mailboxes, Vec<File>, Vec<Receiver<ToCore>>);

/// Creates a mailbox for each core and for the admin listener.
pub(super) fn make_mailboxes(cores: CoreCount) -> Result<Mail, Exit> {
    let mut boxes = Vec::new();
    let mut bells = Vec::new();
    let mut mail = Vec::new();
    for _ in 0..=cores.get() {
        let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)
            .map_err(|error| thread_exit("a doorbell", &error.into()))?;
        let bell = File::from(bell);
        let ring = bell.try_clone().map_err(|error| thread_exit("a doorbell", &error))?;
        let (mailbox, receiver) = Mailbox::new(Arc::new(ring));
        boxes.push(mailbox);
        bells.push(bell);
        mail.push(receiver);
    }
    Ok((Mailboxes::new(boxes), bells, mail))
}

/// A core's queue of fresh codes; the admin listener has none.
struct CodeQueue(Option<CodeSource>);

impl FreshCodes for CodeQueue {
    fn take(&mut self) -> Option<Code> {
        self.0.as_mut()?.take().map(|code| code.to_code())
    }

    fn remaining(&self) -> usize {
        self.0.as_ref().map_or(0, CodeSource::remaining)
    }
}

/// Returns the number of cores in the settings.
pub(super) fn core_count(settings: &Settings) -> CoreCount {
    CoreCount::new(settings.cores.cpus.len()).expect("the settings name at least one CPU")
}
