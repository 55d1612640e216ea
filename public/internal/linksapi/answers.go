package linksapi

// The answers, with the members in Constellation's order. No list is null.

// record is a record that links.
type record struct {
	DID        string `json:"did"`
	Collection string `json:"collection"`
	RKey       string `json:"rkey"`
}

type totalAnswer struct {
	Total uint64 `json:"total"`
}

type recordsAnswer struct {
	Total   uint64   `json:"total"`
	Records []record `json:"records"`
	Cursor  *string  `json:"cursor"` // null on the last page, in all answers
}

// oldRecordsAnswer is recordsAnswer of /links.
type oldRecordsAnswer struct {
	Total   uint64   `json:"total"`
	Records []record `json:"linking_records"`
	Cursor  *string  `json:"cursor"`
}

type didsAnswer struct {
	Total  uint64   `json:"total"`
	DIDs   []string `json:"linking_dids"`
	Cursor *string  `json:"cursor"`
}

// otherCount is how many records, of how many accounts, link to the subject and to another.
type otherCount struct {
	Subject  string `json:"subject"`
	Total    uint64 `json:"total"`
	Distinct uint64 `json:"distinct"`
}

type otherCountsAnswer struct {
	Counts []otherCount `json:"counts_by_other_subject"`
	Cursor *string      `json:"cursor"`
}

type item struct {
	Record record `json:"linkRecord"`
	Other  string `json:"otherSubject"`
}

type itemsAnswer struct {
	Items  []item  `json:"items"`
	Cursor *string `json:"cursor"`
}

// mostLinkedAnswer is the subjects with most recent links, from one source each.
type mostLinkedAnswer struct {
	SinceUS  *int64       `json:"since_us"` // null: nothing was linked of late
	Subjects []mostLinked `json:"subjects"`
	Others   uint64       `json:"others_at_most"` // links that any other subject has from one source
}

type mostLinked struct {
	Source  string `json:"source"`
	Subject string `json:"subject"`
	Records uint64 `json:"records"`
}

// allAnswer is the answer of /links/all and /links/all/count: counts by collection and path.
type allAnswer[T any] struct {
	Links map[string]map[string]T `json:"links"`
}

type bothCounts struct {
	Records uint64 `json:"records"`
	DIDs    uint64 `json:"distinct_dids"`
}
