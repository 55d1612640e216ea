package refs

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// testRows are rows of two accounts, as lines of gathered.
func testRows() (rows []Row, want []string) {
	for i := range 40 {
		r := Row{fmt.Sprintf("did:web:%d.example.com", i/25), "a.b.c", fmt.Sprint(i / 2), "a[].\"b\",\n c", subject + fmt.Sprint(i)}
		if i%7 == 0 {
			r.Path, r.Subject = "", "did:web:example.net"
		}
		rows = append(rows, r)
		want = append(want, fmt.Sprintf("%s/%s/%s %s=%s", r.DID, r.Collection, r.Key, r.Path, r.Subject))
	}
	return rows, want
}

// TestReadRows: what a RowWriter writes is read again, in both formats; CSV also without its first
// line.
func TestReadRows(t *testing.T) {
	rows, want := testRows()
	files := make(map[string][]byte)
	for _, format := range []string{"ndjson", "csv"} {
		var buf bytes.Buffer
		w := NewRowWriter(&buf, format)
		for i := range rows {
			if err := w.Write(&rows[i]); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		files[format] = buf.Bytes()
	}
	_, files["csv without names"], _ = bytes.Cut(files["csv"], []byte("\n"))
	files["ndjson with empty lines"] = append([]byte("\r\n\n"), bytes.ReplaceAll(files["ndjson"], []byte("\n"), []byte("\r\n\n"))...)
	files["ndjson with a name in upper case"] = bytes.ReplaceAll(files["ndjson"], []byte(`"did":`), []byte(`"DID":`))
	for _, format := range []string{"ndjson", "csv"} {
		files[format+" with a mark"] = append([]byte("\ufeff"), files[format]...)
	}
	for _, r := range rows {
		fields := strings.ReplaceAll(strings.Join([]string{r.DID, r.Collection, r.Key, r.Path, r.Subject}, "\x00"), `"`, `""`)
		files["csv, all quoted"] = append(files["csv, all quoted"], `"`+strings.ReplaceAll(fields, "\x00", `","`)+"\"\n"...)
	}
	for name, file := range files {
		var r Reader
		var g gathered
		if err := r.Read(t.Context(), bytes.NewReader(file), &g); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, g.lines); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
		if g.rev != 0 {
			t.Errorf("%s: rev %d", name, g.rev)
		}
		if is, err := IsRepository(bytes.NewReader(file)); err != nil || is {
			t.Errorf("%s: it is a repository: %v", name, err)
		}
	}
}

// TestBadRows: the line that is wrong is named, with the reason.
func TestBadRows(t *testing.T) {
	good := fmt.Sprintf(`{"did":%q,"collection":"a.b.c","rkey":"1","path":"a","subject":%q}`+"\n", testDID, subject)
	line := func(old, new string) string { return good + strings.Replace(good, old, new, 1) }
	csv := fmt.Sprintf("%s,a.b.c,1,a,%s\n", testDID, subject)
	for name, tc := range map[string]struct{ file, says string }{
		"no JSON":           {good + "{", "line 2: it is not a JSON object"},
		"an array":          {good + "[]", "line 2: it is not a JSON object"},
		"no DID":            {line(testDID, "did:x"), "line 2: \"did:x\" is no did"},
		"no collection":     {line("a.b.c", "a"), "line 2: \"a\" is no collection"},
		"no rkey":           {line(`"rkey":"1"`, `"key":"1"`), "line 2: \"\" is no rkey"},
		"no subject":        {line(subject, "https://example.com"), "is no subject"},
		"a long path":       {line(`"path":"a"`, `"path":"`+strings.Repeat("a", 513)+`"`), "is no path"},
		"an account twice":  {good + strings.Replace(good, testDID, "did:web:example.com", 1) + good, "line 3: " + testDID + " had rows before"},
		"a long line":       {good + good + strings.Repeat(" ", maxRowBytes+1), "line 3: it is longer"},
		"not UTF-8":         {line("a.b.c", "a\xff"), "line 2: it is not UTF-8"},
		"CSV, four fields":  {csv + "did:web:example.com,a.b.c,1,a\n", "line 2: wrong number of fields"},
		"CSV, six fields":   {csv + strings.TrimSpace(csv) + ",x\n", "line 2: wrong number of fields"},
		"CSV, other names":  {"did,collection,path,rkey,subject\n" + csv, "column 3 is \"path\""},
		"CSV, names twice":  {csv + strings.Join(columns(), ",") + "\n", "line 2: "},
		"CSV, no subject":   {strings.Join(columns(), ",") + "\n" + csv + strings.Replace(csv, subject, "x", 1), "line 3: \"x\" is no subject"},
		"CSV, a stray mark": {csv + `did:web:example.com,a.b.c,1,a"b,` + subject, "line 2: bare \" in non-quoted-field"},
		"CSV, an open mark": {csv + `"` + strings.Repeat("a\n", maxRowBytes), "line 2: it is longer"},
		"CSV, not UTF-8":    {csv + strings.Replace(csv, "a.b.c", "a\xff", 1), "line 2: it is not UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			var r Reader
			err := r.Read(t.Context(), strings.NewReader(tc.file), &gathered{})
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v, which should say %q", err, tc.says)
			}
		})
	}
	w := NewRowWriter(&bytes.Buffer{}, "csv")
	if err := w.Write(&Row{testDID, "a.b.c", "1", "a\r\nb", subject}); err == nil || !strings.Contains(err.Error(), "ndjson") {
		t.Errorf("a carriage return in CSV: %v", err)
	}
}
