package refs

import (
	"cmp"
	"errors"
	"fmt"
	"testing"

	"millrace/replay"
	"millrace/replay/references"
)

// TestLay: what the file says, and over it what the log has above that; an account whose log does
// not reach back far enough is refused.
func TestLay(t *testing.T) {
	const asOf, rev, since = 1_000_000_000, 50 << 10, 50
	log := func(operation references.Operation, record, rev uint64, timeUS int64) references.Change {
		return references.Change{Operation: operation, Seq: 7, Account: 3, Record: record, Rev: rev, TimeUS: timeUS}
	}
	create := func(record, rev uint64) references.Change { return log(references.Create, record, rev, 0) }
	gone := func(timeUS int64) references.Change { return log(references.DeleteAccount, 0, 0, timeUS) }
	for _, tc := range []struct {
		name  string
		rows  bool
		late  bool
		since int64
		known uint64
		laid  []references.Change
		want  string // records, after the Import; "": refused
		last  uint64 // 0: the file's rev or, of rows, known
	}{
		{name: "the file alone", want: "[1 2]"},
		{name: "what the log has at the file's rev and above", laid: []references.Change{create(4, rev-1), create(5, rev), create(6, rev+1)}, want: "[1 2 6]"},
		{name: "a deletion that the file has", laid: []references.Change{create(4, rev+1), gone(asOf), create(5, rev+2)}, want: "[1 2 5]"},
		{name: "a deletion behind the file", laid: []references.Change{create(4, rev+1), gone(asOf + 1), create(5, rev+2)}, want: "[5]"},
		{name: "a deletion twice", laid: []references.Change{gone(asOf + 1), create(5, rev+2), gone(asOf + 1)}, want: "[5]"},
		{name: "an older deletion again", laid: []references.Change{gone(asOf + 9), create(5, rev+2), gone(asOf + 1)}, want: "[5]"},
		{name: "the store's last commit", known: rev, want: "[1 2]"},
		{name: "a commit that was trimmed", known: rev + 1},
		{name: "the store's last commit, of the log", known: rev + 2, laid: []references.Change{create(4, rev+2), create(5, rev+1)}, want: "[1 2 4 5]"},
		{name: "a #sync of the file's rev", laid: []references.Change{create(4, rev+1), log(references.Sync, 0, rev, 9)}, want: "[1 2 4]"},
		{name: "a #sync above the file's rev", laid: []references.Change{create(4, rev+1), log(references.Sync, 0, rev+2, 9)}, want: "[1 2 4 0]"},
		{name: "a commit that was trimmed, before a #sync", known: rev + 1, laid: []references.Change{log(references.Sync, 0, rev+2, 9)}},
		{name: "rows, and a commit before them", rows: true, known: asOf << 10, want: "[1 2]"},
		{name: "rows, and a commit behind them", rows: true, known: asOf<<10 + 1, want: "[1 2]"},
		{name: "rows, and commits that came long after their revs say", rows: true, known: rev - 3,
			laid: []references.Change{create(4, rev-8), log(references.Activate, 0, 0, 9), create(5, rev-3)}, want: "[1 2 4 5]", last: rev - 9},
		{name: "rows, and a #sync of an old rev", rows: true, known: rev - 8, laid: []references.Change{log(references.Sync, 0, rev-7, 9)}, want: "[1 2 0]", last: rev - 8},
		{name: "rows, and a deletion that their clock may hide", rows: true, laid: []references.Change{gone(asOf), create(5, rev+2)}, want: "[5]"},
		{name: "rows, and a deletion that they have", rows: true, laid: []references.Change{gone(asOf - clockSlack.Microseconds())}, want: "[1 2]"},
		{name: "rows, and #sync before and behind the first commit", rows: true, known: rev - 3, want: "[1 2 0 4 0]", last: rev - 6,
			laid: []references.Change{log(references.Sync, 0, rev-5, 9), create(4, rev-3), log(references.Sync, 0, rev-9, 9)}},
		{name: "rows, and a #sync that comes again", rows: true, known: rev - 3, laid: []references.Change{log(references.Sync, 0, rev-5, 9)}, want: "[1 2 0]"},
		{name: "a late file of the log's first stamp", late: true, since: since, want: "[1 2]"},
		{name: "a late file from before the log", late: true, since: since + 1},
		{name: "a late file, and a deletion behind its rev", late: true, since: since, laid: []references.Change{gone(since + 1)}, want: "[]"},
	} {
		a := &importedAccount{
			uid: 3, rev: rev, rows: tc.rows, late: tc.late, asOfUS: asOf, known: references.Account{Rev: tc.known},
			record: []references.Change{create(1, rev), create(2, rev)}, laid: tc.laid,
		}
		changes, err := a.lay(tc.since)
		if tc.want == "" {
			if !errors.Is(err, errTooOld) {
				t.Errorf("%s: %v, %v", tc.name, changes, err)
			}
			continue
		}
		if err != nil || len(changes) == 0 || changes[0].Operation != references.Import || changes[0].Account != 3 || changes[0].Rev != rev {
			t.Errorf("%s: it begins with %+v, %v", tc.name, changes, err)
			continue
		}
		last := uint64(rev)
		if tc.rows {
			last = cmp.Or(tc.last, tc.known)
		}
		if changes[0].Last != last {
			t.Errorf("%s: the last rev is %d, want %d", tc.name, changes[0].Last, last)
		}
		records := []uint64{}
		for i, c := range changes[1:] {
			if records = append(records, c.Record); i >= len(a.record) && c.Seq != 0 {
				t.Errorf("%s: a change of the log keeps its seq", tc.name)
			}
		}
		if got := fmt.Sprint(records); got != tc.want {
			t.Errorf("%s: the records %s, want %s", tc.name, got, tc.want)
		}
	}
}

// TestResumePoints: the log is read from the last point before all that counts.
func TestResumePoints(t *testing.T) {
	i := &Import{}
	for n, us := range []int64{10, 10 + resumeInterval - 1, 10 + resumeInterval, 0, 10 + 3*resumeInterval} {
		c := &replay.Changes{Through: replay.EpochEnd{Epoch: 1, Seq: int64(n)}}
		if us > 0 {
			c.Events = []replay.Change{{TimeUS: 1}, {TimeUS: us}}
		}
		i.note(c)
	}
	if got, want := fmt.Sprint(i.resume), "[{10 {1 0}} {1000010 {1 2}} {3000010 {1 4}}]"; got != want {
		t.Fatalf("points %s, want %s", got, want)
	}
	for from, want := range map[int64]int{0: 0, 10: 0, 11: 1, 1_000_010: 1, 1_000_011: 2, 3_000_011: 3} {
		later := &importedAccount{fromUS: from + 5_000_000, asOfUS: 1}
		i.group = []*importedAccount{later, {fromUS: from, asOfUS: from + 600}, later}
		if n := i.resumeBefore(); n != want {
			t.Errorf("from %d: %d points, want %d", from, n, want)
		}
	}
}
