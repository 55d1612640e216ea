package client

import (
	"net/url"
	"reflect"
	"testing"
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
		update := updateMessage(inURL(o))
		if string(update) == string(updateMessage(inURL(none))) {
			t.Errorf("%s is not in the update", f.Name)
		}
		base, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if got := updateMessage(base); string(got) != string(update) {
			t.Errorf("%s is not read from the URL: %s, want %s", f.Name, got, update)
		}
		if v.Kind() == reflect.Slice && reflect.ValueOf(o.clone()).FieldByIndex(f.Index).Pointer() == v.Pointer() {
			t.Errorf("%s is not copied", f.Name)
		}
		if invalid.validate() == nil {
			t.Errorf("%s is not checked", f.Name)
		}
	}
}

// inURL returns the options as a URL has them.
func inURL(o Options) url.Values {
	q := url.Values{}
	o.addTo(q, "wantedCollections", "wantedDids")
	return q
}
