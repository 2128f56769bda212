//! The table of cores: its columns, their order, and how many of them fit.

use std::cmp::Ordering;

use super::snapshot::{CoreLoad, Traffic};
use crate::commands::status::text::grouped;
use carom_telemetry::readable;

/// Character cells between two columns of the table.
const GAP: usize = 2;

/// Shown where a number is not known yet.
pub(super) const UNKNOWN: &str = "–";

/// A column of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Column {
    Core,
    Cpu,
    Requests,
    P99,
    Connections,
    Links,
    NotFound,
    Errors,
    Lookups,
    Codes,
    FramesIn,
    FramesOut,
    Retransmitted,
    Dropped,
    Held,
}

/// Columns of kernel bypass.
const BYPASS: [Column; 5] = [Column::FramesIn, Column::FramesOut, Column::Retransmitted, Column::Dropped, Column::Held];

/// The order of the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RowOrder {
    pub(super) by: Column,
    pub(super) is_reversed: bool,
}

impl Column {
    /// Returns the columns for these cores, the most important first: a narrow terminal shows the first ones.
    fn all(cores: &[CoreLoad]) -> Vec<Column> {
        let mut all =
            vec![Column::Core, Column::Cpu, Column::Requests, Column::P99, Column::Connections, Column::Links];
        if cores.iter().any(|core| core.bypass.is_some()) {
            all.extend(BYPASS);
        }
        all.extend([Column::NotFound, Column::Errors, Column::Lookups, Column::Codes]);
        all
    }

    /// Returns the title of the column.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Column::Core => "core",
            Column::Cpu => "CPU",
            Column::Requests => "requests/s",
            Column::P99 => "p99",
            Column::Connections => "connections",
            Column::Links => "links",
            Column::NotFound => "not found/s",
            Column::Errors => "errors/s",
            Column::Lookups => "lookups/s",
            Column::Codes => "codes",
            Column::FramesIn => "frames in/s",
            Column::FramesOut => "out/s",
            Column::Retransmitted => "resent/s",
            Column::Dropped => "dropped/s",
            Column::Held => "unacked",
        }
    }

    /// Returns the number of a core; `None` if it is not known.
    fn number(self, core: &CoreLoad) -> Option<f64> {
        let traffic = |of: fn(&Traffic) -> f64| core.traffic.as_ref().map(of);
        match self {
            Column::Core => Some(core.core),
            Column::Cpu => Some(core.cpu),
            Column::Requests => traffic(|traffic| traffic.requests),
            Column::P99 => core.latency.map(|latency| latency.p99),
            Column::Connections => Some(core.connections),
            Column::Links => Some(core.links),
            Column::NotFound => traffic(|traffic| traffic.not_found),
            Column::Errors => traffic(|traffic| traffic.errors),
            Column::Lookups => core.lookups,
            Column::Codes => Some(core.codes),
            Column::FramesIn => core.bypass?.frames_in,
            Column::FramesOut => core.bypass?.frames_out,
            Column::Retransmitted => core.bypass?.retransmitted,
            Column::Dropped => core.bypass?.dropped,
            Column::Held => Some(core.bypass?.held),
        }
    }

    /// Returns the cell of a core.
    pub(super) fn cell(self, core: &CoreLoad) -> String {
        match self.number(core) {
            Some(micros) if self == Column::P99 => readable::latency(micros),
            Some(number) => grouped(number),
            None => UNKNOWN.to_owned(),
        }
    }

    /// True if the smallest number comes first, unless the order is reversed.
    const fn is_ascending(self) -> bool {
        matches!(self, Column::Core | Column::Cpu)
    }
}

impl RowOrder {
    /// Returns the title of a column, with a mark if the rows are ordered by it.
    pub(super) fn title(self, column: Column) -> String {
        let mark = match (self.by == column, column.is_ascending() != self.is_reversed) {
            (false, _) => "",
            (true, true) => "▲",
            (true, false) => "▼",
        };
        format!("{}{mark}", column.title())
    }

    /// Returns the cores in this order. Cores without a number are the last ones.
    pub(super) fn sorted(self, cores: &[CoreLoad]) -> Vec<&CoreLoad> {
        let is_ascending = self.by.is_ascending() != self.is_reversed;
        let mut sorted: Vec<&CoreLoad> = cores.iter().collect();
        sorted.sort_by(|a, b| match (self.by.number(a), self.by.number(b)) {
            (Some(a), Some(b)) if is_ascending => a.total_cmp(&b),
            (Some(a), Some(b)) => b.total_cmp(&a),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => Ordering::Equal,
        });
        sorted
    }
}

/// Returns the width of a column: that of its widest cell.
pub(super) fn width_of(column: Column, cores: &[CoreLoad], sort: RowOrder) -> usize {
    let cells = cores.iter().map(|core| column.cell(core).chars().count());
    cells.max().unwrap_or(0).max(sort.title(column).chars().count())
}

/// Returns the columns that fit into this width. There is always one.
pub(super) fn shown(cores: &[CoreLoad], sort: RowOrder, width: usize) -> Vec<Column> {
    let mut used = 0;
    let mut all = Column::all(cores);
    let fitting = all.iter().take_while(|column| {
        used += width_of(**column, cores, sort) + GAP;
        // The last column needs no gap.
        used - GAP <= width
    });
    let count = fitting.count().max(1);
    all.truncate(count);
    all
}

/// Returns a row of the table, with each cell at the right of its column.
pub(super) fn row(cells: &[String], widths: &[usize]) -> String {
    let padded: Vec<String> = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
    padded.join(&" ".repeat(GAP))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::snapshot::Snapshot;
    use super::*;

    fn cores(connections: &[u64], with_bypass: bool) -> Vec<CoreLoad> {
        let bypass = if with_bypass { json!({"framesHeld": 1}) } else { json!(null) };
        let core =
            |(core, connections): (usize, &u64)| json!({"core": core, "connections": connections, "bypass": bypass});
        let list: Vec<_> = connections.iter().enumerate().map(core).collect();
        Snapshot::new(None, &json!({"cores": list})).cores
    }

    fn order(by: Column, is_reversed: bool) -> RowOrder {
        RowOrder { by, is_reversed }
    }

    #[test]
    fn rows_are_ordered_by_a_column() {
        let cores = cores(&[5, 9, 7], false);
        let sorted = |by, is_reversed| -> Vec<f64> {
            order(by, is_reversed).sorted(&cores).iter().map(|core| core.core).collect()
        };
        assert_eq!(sorted(Column::Core, false), [0.0, 1.0, 2.0]);
        assert_eq!(sorted(Column::Core, true), [2.0, 1.0, 0.0]);
        assert_eq!(sorted(Column::Connections, false), [1.0, 2.0, 0.0]);
        assert_eq!(sorted(Column::Connections, true), [0.0, 2.0, 1.0]);
        assert_eq!(sorted(Column::Requests, false), [0.0, 1.0, 2.0]);
        assert_eq!(order(Column::Core, false).title(Column::Core), "core▲");
        assert_eq!(order(Column::Links, false).title(Column::Links), "links▼");
        assert_eq!(order(Column::Links, false).title(Column::Core), "core");
    }

    #[test]
    fn narrow_tables_keep_the_first_columns() {
        let (kernel, bypass) = (cores(&[1], false), cores(&[1], true));
        let count = |cores: &[CoreLoad], width| shown(cores, order(Column::Core, false), width).len();
        assert_eq!(count(&kernel, 0), 1);
        assert_eq!(count(&kernel, 10), 2);
        assert_eq!(count(&kernel, 200), 10);
        assert_eq!(count(&bypass, 200), 15);
        for width in 5..200 {
            let columns = shown(&bypass, order(Column::P99, true), width);
            let widths: usize = columns.iter().map(|column| width_of(*column, &bypass, order(Column::P99, true))).sum();
            assert!(widths + GAP * (columns.len() - 1) <= width, "{width}: {columns:?}");
        }
    }

    #[test]
    fn cells_are_aligned_to_the_right() {
        assert_eq!(row(&["1".to_owned(), "20".to_owned()], &[3, 2]), "  1  20");
    }
}
