package linksapi

import (
	"fmt"
	"strings"

	"millrace/replay/links"
)

func (r *request) count() (counts links.Counts, err error) {
	if r.unknown() {
		return counts, nil
	}
	return r.links.Count(r.ctx, r.set)
}

func answerCount(r *request) (any, error) {
	counts, err := r.count()
	return totalAnswer{counts.Records}, err
}

func answerDIDCount(r *request) (any, error) {
	counts, err := r.count()
	return totalAnswer{counts.Accounts}, err
}

func answerAll(r *request) (any, error) {
	return byCollection(r, func(c links.Counts) bothCounts { return bothCounts{c.Records, c.Accounts} })
}

func answerAllCounts(r *request) (any, error) {
	return byCollection(r, func(c links.Counts) uint64 { return c.Records })
}

// byCollection returns the counts of each source, converted by become, by collection and path. Its
// paths begin with a dot.
func byCollection[T any](r *request, become func(links.Counts) T) (any, error) {
	answer := allAnswer[T]{make(map[string]map[string]T)}
	if r.set.Subject == 0 {
		return answer, nil
	}
	sources, err := r.links.Sources(r.ctx, r.set.Subject)
	if err != nil {
		return nil, err
	}
	for _, s := range sources {
		source, ok := r.api.cfg.Log.SourceOf(s.Path)
		if !ok {
			return nil, fmt.Errorf("source %d of a link is unknown to the log", s.Path)
		}
		collection, path, _ := strings.Cut(source, ":")
		if answer.Links[collection] == nil {
			answer.Links[collection] = make(map[string]T)
		}
		answer.Links[collection]["."+path] = become(s.Counts)
	}
	return answer, nil
}
