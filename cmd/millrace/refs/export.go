package refs

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"millrace/replay/references"
)

// Names gives the strings of UIDs; *intern.Interner does.
type Names interface {
	LookupUIDs(ctx context.Context, uids []uint64, strings []string) error
}

// SourceTable gives the sources of numbers; *replay.Log does.
type SourceTable interface {
	SourceOf(number uint32) (source string, ok bool)
}

// Export has the sources of an export's rows, and selects the rows.
type Export struct {
	Store    *references.Store
	Names    Names
	Table    SourceTable
	Accounts []uint64        // UIDs; nil: all
	Sources  map[string]bool // collection:path; nil: all
	Progress func(rows uint64)
}

// exportLookup is how many UIDs are looked up at once; the look-up's limit has room for one more
// record.
const exportLookup = 8000

// Run writes a row for each reference of a record that is alive, in the order of accounts and
// records. It returns how many.
func (e *Export) Run(ctx context.Context, w *RowWriter) (rows uint64, err error) {
	x := exporter{Export: e, ctx: ctx, w: w}
	if e.Accounts == nil {
		_, err = e.Store.Rows(ctx, x.add)
	}
	for _, account := range e.Accounts {
		if err == nil {
			_, err = e.Store.RowsOf(ctx, account, x.add)
		}
	}
	if err == nil {
		err = x.flush()
	}
	if err == nil {
		err = w.Flush()
	}
	return x.rows, err
}

// exporter is one run of Export.
type exporter struct {
	*Export
	ctx   context.Context
	w     *RowWriter
	rows  uint64
	refs  []exportedReference
	uids  []uint64 // of records and subjects
	names []string
}

type exportedReference struct {
	record, subject int // in uids
	path            string
}

// add takes what is wanted of a row.
func (x *exporter) add(r *references.Row) error {
	record := -1
	for _, ref := range r.References {
		source, ok := x.Table.SourceOf(ref.Path)
		if !ok {
			return fmt.Errorf("record %d of account %d has a reference with source %d, which the log does not know", r.Record, r.Account, ref.Path)
		}
		if x.Sources != nil && !x.Sources[source] {
			continue
		}
		if record < 0 {
			record = len(x.uids)
			x.uids = append(x.uids, r.Record)
		}
		_, path, _ := strings.Cut(source, ":")
		x.refs = append(x.refs, exportedReference{record, len(x.uids), path})
		x.uids = append(x.uids, ref.Subject)
	}
	if len(x.uids) < exportLookup {
		return nil
	}
	return x.flush()
}

// flush writes what was taken.
func (x *exporter) flush() error {
	x.names = append(x.names[:0], make([]string, len(x.uids))...)
	if err := x.Names.LookupUIDs(x.ctx, x.uids, x.names); err != nil {
		return err
	}
	for i, name := range x.names {
		if name == "" {
			return fmt.Errorf("UID %d is not in the UID store", x.uids[i])
		}
	}
	for _, ref := range x.refs {
		parts := strings.Split(strings.TrimPrefix(x.names[ref.record], "at://"), "/")
		if len(parts) != 3 {
			return fmt.Errorf("UID %d stands for %.100q, which is no record", x.uids[ref.record], x.names[ref.record])
		}
		if err := x.w.Write(&Row{parts[0], parts[1], parts[2], ref.path, x.names[ref.subject]}); err != nil {
			return err
		}
		x.rows++
	}
	x.refs, x.uids = x.refs[:0], x.uids[:0]
	if x.Progress != nil {
		x.Progress(x.rows)
	}
	return nil
}

// RowWriter writes rows; Flush comes last.
type RowWriter struct {
	json *json.Encoder // nil: rows are CSV
	csv  *csv.Writer
}

// NewRowWriter writes rows to w as "ndjson" or "csv".
func NewRowWriter(w io.Writer, format string) *RowWriter {
	out := &RowWriter{csv: csv.NewWriter(w)}
	if format == "csv" {
		_ = out.csv.Write(columns()) // it is buffered; Flush reports an error
		return out
	}
	out.json = json.NewEncoder(w)
	out.json.SetEscapeHTML(false)
	return out
}

// Write writes a row.
func (w *RowWriter) Write(r *Row) error {
	if w.json != nil {
		return w.json.Encode(r)
	}
	if strings.Contains(r.Path, "\r") {
		return fmt.Errorf("the path %.100q has a carriage return, which readers of CSV do not keep: export as ndjson", r.Path)
	}
	return w.csv.Write([]string{r.DID, r.Collection, r.Key, r.Path, r.Subject})
}

// Flush writes what is buffered.
func (w *RowWriter) Flush() error {
	w.csv.Flush()
	return w.csv.Error()
}
