package linksapi

import (
	"context"
	"fmt"
	"strings"

	"millrace/replay/links"
)

// request is a query, and what answers it.
type request struct {
	ctx   context.Context
	api   *API
	links links.View
	query *query
	*target
}

// unknown says whether nothing can answer r: a name of it is in no record.
func (r *request) unknown() bool { return r.set.Subject == 0 || r.set.Path == 0 }

// cursor returns the cursor of the page after a link; nil if there is none.
func (r *request) cursor(after links.OthersCursor, k kind) *string {
	return encodeCursor(cursor{r.api.cfg.Links.Since(), after}, k)
}

func (r *request) page() links.Page {
	return links.Page{Accounts: r.dids, Cursor: r.query.cursor.after.Arrival, Limit: r.query.limit, Reverse: r.query.reverse}
}

func (r *request) othersQuery() links.OthersQuery {
	return links.OthersQuery{
		Set: r.set, OtherPath: r.other, Accounts: r.dids, Others: r.others, Cursor: r.query.cursor.after, Limit: r.query.limit,
	}
}

func answerRecords(r *request) (any, error) {
	answer := recordsAnswer{Records: []record{}}
	if r.unknown() {
		return answer, nil
	}
	found, err := r.links.Records(r.ctx, r.set, r.page())
	if err != nil {
		return nil, err
	}
	answer.Total, answer.Cursor = found.Total, r.cursor(links.OthersCursor{Arrival: found.Next}, ofRecords)
	answer.Records, err = r.records(found.Links)
	return answer, err
}

func answerOldRecords(r *request) (any, error) {
	answer, err := answerRecords(r)
	if err != nil {
		return nil, err
	}
	return oldRecordsAnswer(answer.(recordsAnswer)), nil
}

func answerDIDs(r *request) (any, error) {
	answer := didsAnswer{DIDs: []string{}}
	if r.unknown() {
		return answer, nil
	}
	found, err := r.links.Accounts(r.ctx, r.set, r.page())
	if err != nil {
		return nil, err
	}
	answer.Total, answer.Cursor = found.Total, r.cursor(links.OthersCursor{Arrival: found.Next}, ofDIDs)
	answer.DIDs, err = r.api.Names(r.ctx, found.Accounts)
	return answer, err
}

func answerOtherCounts(r *request) (any, error) {
	answer := otherCountsAnswer{Counts: []otherCount{}}
	if r.unknown() || r.other == 0 {
		return answer, nil
	}
	found, err := r.links.OtherCounts(r.ctx, r.othersQuery())
	if err != nil {
		return nil, err
	}
	answer.Cursor = r.cursor(found.Next, ofCounts)
	uids := make([]uint64, len(found.Counts))
	for i := range found.Counts {
		uids[i] = found.Counts[i].Subject
	}
	names, err := r.api.Names(r.ctx, uids)
	for i, name := range names {
		answer.Counts = append(answer.Counts, otherCount{name, found.Counts[i].Records, found.Counts[i].Accounts})
	}
	return answer, err
}

func answerItems(r *request) (any, error) {
	answer := itemsAnswer{Items: []item{}}
	if r.unknown() || r.other == 0 {
		return answer, nil
	}
	found, err := r.links.Others(r.ctx, r.othersQuery())
	if err != nil {
		return nil, err
	}
	answer.Cursor = r.cursor(found.Next, ofItems)
	uids := make([]uint64, 0, 2*len(found.Items))
	for i := range found.Items {
		uids = append(uids, found.Items[i].Record, found.Items[i].Subject)
	}
	names, err := r.api.Names(r.ctx, uids)
	for i := 0; i < len(names); i += 2 {
		linking, err := newRecord(names[i])
		if err != nil {
			return nil, err
		}
		answer.Items = append(answer.Items, item{linking, names[i+1]})
	}
	return answer, err
}

// records returns the records that link.
func (r *request) records(found []links.Link) ([]record, error) {
	uids := make([]uint64, len(found))
	for i := range found {
		uids[i] = found[i].Record
	}
	names, err := r.api.Names(r.ctx, uids)
	if err != nil {
		return nil, err
	}
	list := make([]record, len(names))
	for i, name := range names {
		if list[i], err = newRecord(name); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// newRecord takes the AT URI of a record apart: at://did/collection/rkey.
func newRecord(uri string) (record, error) {
	did, rest, _ := strings.Cut(strings.TrimPrefix(uri, "at://"), "/")
	collection, rkey, ok := strings.Cut(rest, "/")
	if !ok {
		return record{}, fmt.Errorf("%.200q has a link, but is not the URI of a record", uri)
	}
	return record{did, collection, rkey}, nil
}
