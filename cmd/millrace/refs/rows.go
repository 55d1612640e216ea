package refs

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"unicode/utf8"

	"millrace/translate"
)

// columns are the fields of a row, in their order in CSV.
func columns() []string { return []string{"did", "collection", "rkey", "path", "subject"} }

// Row is one reference of a record.
type Row struct {
	DID        string `json:"did"`
	Collection string `json:"collection"`
	Key        string `json:"rkey"`
	Path       string `json:"path"`
	Subject    string `json:"subject"`
}

// rows gives the next row of a file, io.EOF after the last.
type rows func(r *Row) (line int, err error)

var errLongRow = fmt.Errorf("it is longer than %d bytes", maxRowBytes)

// readRows reads rows. Those of an account must follow each other.
func (r *Reader) readRows(ctx context.Context, next rows, sink Sink) error {
	tr, err := translate.New(translate.Config{Collections: r.Collections})
	if err != nil {
		return err
	}
	seed, seen := maphash.MakeSeed(), make(map[uint64]struct{})
	var last string
	var w Row
	rec := Record{References: make([]Reference, 1)}
	for {
		line, err := next(&w)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			if reason := translate.InvalidReference(w.DID, w.Collection, w.Key, w.Path, w.Subject); reason != "" {
				err = errors.New(reason)
			}
		}
		if err == nil && w.DID != last {
			hash := maphash.String(seed, w.DID)
			if _, twice := seen[hash]; twice {
				err = fmt.Errorf("%s had rows before those of %s: sort the file, so that those of an account follow each other", w.DID, last)
			}
			seen[hash] = struct{}{}
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
		if w.DID != last {
			if err := sink.Begin(w.DID, 0); err != nil {
				return err
			}
			last = w.DID
		}
		if !tr.Holds([]byte(w.Collection)) {
			r.Counts.Filtered++
			continue
		}
		rec.Collection, rec.Key = []byte(w.Collection), []byte(w.Key)
		rec.References[0] = Reference{[]byte(w.Path), []byte(w.Subject)}
		if err := errors.Join(sink.Add(&rec), context.Cause(ctx)); err != nil {
			return err
		}
	}
}

// jsonRows reads a JSON object a line. Empty lines are passed over, as are unknown members. As
// encoding/json does, it takes a member's name in any case, and of members with one name the last.
func jsonRows(in io.Reader) rows {
	lines, line := bufio.NewScanner(in), 0
	lines.Buffer(nil, maxRowBytes)
	return func(r *Row) (int, error) {
		for lines.Scan() {
			line++
			text := bytes.TrimSpace(lines.Bytes())
			if len(text) == 0 {
				continue
			}
			if !utf8.Valid(text) {
				return line, cmp.Or(lines.Err(), errors.New("it is not UTF-8"))
			}
			*r = Row{}
			if err := json.Unmarshal(text, r); err != nil { // a failed read ends within a line
				return line, cmp.Or(lines.Err(), fmt.Errorf("it is not a JSON object with the members %v: %w", columns(), err))
			}
			return line, nil
		}
		switch err := lines.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			return line + 1, errLongRow
		case err != nil:
			return line + 1, err
		}
		return line, io.EOF
	}
}

// csvRows reads rows of CSV (RFC 4180), with or without a first line that names the columns.
func csvRows(in io.Reader) rows {
	limit := &rowLimit{in: in}
	lines := csv.NewReader(limit)
	lines.FieldsPerRecord, lines.ReuseRecord = len(columns()), true
	line, first := 0, true // line is where the last row began
	return func(r *Row) (int, error) {
		for {
			limit.left = maxRowBytes
			fields, err := lines.Read()
			if bad, ok := errors.AsType[*csv.ParseError](err); ok {
				return bad.Line, bad.Err
			}
			if err != nil {
				return line + 1, err
			}
			line, _ = lines.FieldPos(0)
			names := first && fields[0] == columns()[0]
			first = false
			for i, f := range fields {
				switch {
				case !utf8.ValidString(f):
					return line, errors.New("it is not UTF-8")
				case names && f != columns()[i]:
					return line, fmt.Errorf("column %d is %.40q: the columns must be %v", i+1, f, columns())
				}
			}
			if !names {
				*r = Row{fields[0], fields[1], fields[2], fields[3], fields[4]}
				return line, nil
			}
		}
	}
}

// rowLimit bounds what is read for one row, which an open quotation mark would make endless.
type rowLimit struct {
	in   io.Reader
	left int
}

func (l *rowLimit) Read(b []byte) (int, error) {
	if l.left <= 0 {
		return 0, errLongRow
	}
	n, err := l.in.Read(b)
	l.left -= n
	return n, err
}
