package client

import (
	"net/url"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestEachOption: an option is asked for in the URL of either wire and in an update, read back from
// a URL, copied, and checked.
func TestEachOption(t *testing.T) {
	var cfg Config
	for f := range reflect.TypeFor[Options]().Fields() {
		var none, o, invalid Options
		v, bad := reflect.ValueOf(&o).Elem().FieldByIndex(f.Index), reflect.ValueOf(&invalid).Elem().FieldByIndex(f.Index)
		switch f.Type {
		case reflect.TypeFor[[]string]():
			v.Set(reflect.ValueOf([]string{"a"}))
			bad.Set(reflect.ValueOf(make([]string, max(MaxCollections, MaxDIDs, MaxSubjects, MaxSources)+1)))
		case reflect.TypeFor[int]():
			v.SetInt(1)
			bad.SetInt(-1)
		default:
			t.Fatalf("this test cannot set %s", f.Name)
		}
		query, _ := cfg.query(url.Values{}, o, "")
		if plain, _ := cfg.query(url.Values{}, none, ""); query == plain {
			t.Errorf("%s is not in the URL", f.Name)
		}
		if cfg.queryV2(url.Values{}, o, "") == cfg.queryV2(url.Values{}, none, "") {
			t.Errorf("%s is not in the URL of v2's wire", f.Name)
		}
		if string(updateMessage(o)) == string(updateMessage(none)) {
			t.Errorf("%s is not in the update", f.Name)
		}
		base, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(o, none.with(base), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s is not read from the URL: -want +got\n%s", f.Name, diff)
		}
		if v.Kind() == reflect.Slice && reflect.ValueOf(o.clone()).FieldByIndex(f.Index).Pointer() == v.Pointer() {
			t.Errorf("%s is not copied", f.Name)
		}
		if invalid.validate() == nil {
			t.Errorf("%s is not checked", f.Name)
		}
	}
}
