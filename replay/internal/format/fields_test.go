package format

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fill sets the fields of the struct v, but for tables of names: a column to 2, 4, 6, …, one value
// for each of n events, and anything else to 3 or true.
func fill(t *testing.T, v reflect.Value, n int) {
	t.Helper()
	for f, v := range v.Fields() {
		switch {
		case f.Type == reflect.TypeFor[SlimIndex]():
			fill(t, v, n)
		case f.Type == reflect.TypeFor[NameTable]():
		case v.Kind() == reflect.Slice:
			v.Set(reflect.MakeSlice(f.Type, n, n))
			for i := range n {
				e := v.Index(i)
				e.Set(reflect.ValueOf(2 * (i + 1)).Convert(e.Type()))
			}
		case v.Kind() == reflect.Bool:
			v.SetBool(true)
		default:
			v.Set(reflect.ValueOf(3).Convert(f.Type))
		}
	}
}

// filledBlock returns a block of n events with all fields of its index and references filled.
func filledBlock(t *testing.T, n int) BlockEvents {
	t.Helper()
	x := &Index{}
	fill(t, reflect.ValueOf(x).Elem(), n)
	x.Kinds = 0
	for i := range n {
		x.Kinds |= 1 << x.KindAt(i)
	}
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"}
	x.Collections, x.DIDs = NewNameTable(names...), NewNameTable(names...)
	var ref Reference
	fill(t, reflect.ValueOf(&ref).Elem(), n)
	var refs ReferencesBuilder
	for range n {
		if err := refs.Add([]Reference{ref}, true); err != nil {
			t.Fatal(err)
		}
	}
	frames := make([]byte, 2*n)
	return BlockEvents{x, refs.Finish(), frames, frames}
}

// TestEachField: no field of an index or of a reference is lost where it is encoded, or where
// blocks are concatenated. Each column counts as memory.
func TestEachField(t *testing.T) {
	whole, half := filledBlock(t, 4), filledBlock(t, 2)
	second := *half.Index // all but the ends of frames, which begin anew
	values := reflect.ValueOf(whole.Index).Elem()
	perEvent := 0
	for _, f := range reflect.VisibleFields(values.Type()) {
		if f.Type.Kind() != reflect.Slice {
			continue
		}
		perEvent += int(f.Type.Elem().Size())
		if f.Name != "PlainEnd" && f.Name != "ZstdEnd" {
			reflect.ValueOf(&second).Elem().FieldByIndex(f.Index).Set(values.FieldByIndex(f.Index).Slice(2, 4))
		}
	}
	second.Kinds = whole.Index.Kinds
	joined := Concat([]BlockEvents{half, {&second, half.References, half.Plain, half.Zstd}}, 0)
	decoded, err := DecodeIndex(AppendIndex(nil, whole.Index))
	if err != nil {
		t.Fatal(err)
	}
	slim, err := DecodeSlimIndex(AppendSlimIndex(nil, &whole.Index.SlimIndex))
	if err != nil {
		t.Fatalf("slim index: %v", err)
	}
	refs, err := DecodeReferences(AppendReferences(nil, whole.References), 4)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name      string
		want, got any
	}{
		{"concatenated", whole.Index, joined.Index},
		{"decoded", whole.Index, decoded},
		{"decoded slim index", &whole.Index.SlimIndex, slim},
		{"memory of two events", 2 * perEvent, int(whole.Index.Memory() - half.Index.Memory())},
		{"references, concatenated", whole.References, joined.References},
		{"references, decoded", whole.References, refs},
	} {
		if diff := cmp.Diff(tc.want, tc.got, compareIndex, cmp.AllowUnexported(References{})); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.name, diff)
		}
	}
	var ref Reference
	fill(t, reflect.ValueOf(&ref).Elem(), 1)
	if got := whole.References.At(whole.References.Entries(3)[0]); got != ref {
		t.Errorf("reference %+v becomes %+v", ref, got)
	}
}
