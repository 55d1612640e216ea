package linksapi

import "strings"

// What each endpoint is asked for.

func parseSource(p *params) query {
	collection, path := p.source()
	return query{subject: p.Required("subject"), source: collection + ":" + path}
}

func parseBacklinks(p *params) query {
	q := parseSource(p)
	q.dids, q.reverse = p.list("did"), p.Flag("reverse")
	p.page(&q, ofRecords)
	return q
}

func parseDIDs(p *params) query {
	q := parseSource(p)
	p.page(&q, ofDIDs)
	return q
}

// parseOther reads what is common to many-to-many requests. did names the filter by accounts.
func parseOther(p *params, did string, k kind) query {
	collection, path := p.source()
	other := p.Required("pathToOther")
	if strings.HasPrefix(other, ".") {
		p.Fail("pathToOther: %.200q begins with a dot, which only the older endpoints' paths do", other)
	}
	q := query{
		subject: p.Required("subject"),
		source:  collection + ":" + path,
		other:   collection + ":" + other,
		dids:    p.list(did),
		others:  p.list("otherSubject"),
	}
	p.page(&q, k)
	return q
}

func parseOtherCounts(p *params) query { return parseOther(p, "did", ofCounts) }

func parseItems(p *params) query { return parseOther(p, "linkDid", ofItems) }

func parseOldSource(p *params) query {
	return query{subject: p.Required("target"), source: p.oldSource()}
}

func parseOldRecords(p *params) query {
	q := parseOldSource(p)
	q.dids = p.oldDIDs()
	p.page(&q, ofRecords)
	return q
}

func parseOldDIDs(p *params) query {
	q := parseOldSource(p)
	p.page(&q, ofDIDs)
	return q
}

// parseNothing parses requests about all subjects, which have no parameters.
func parseNothing(*params) query { return query{anySubject: true} }

func parseTarget(p *params) query { return query{subject: p.Required("target")} }
