package probe

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/dunglas/httpsfv"
)

// quota is what a rate limit leaves: so many requests, for so many seconds.
type quota struct{ remaining, reset int64 }

// plainRateLimit puts what the headers say of a rate limit into the one form that
// [wait.ParseHint] reads. The drafts of the IETF (httpapi-ratelimit-headers) have
// had three: a list of policies ("default";r=0;t=30), one dictionary
// (limit=100, remaining=0, reset=30), and a header for each number. A malformed
// field must be ignored, so it goes.
func plainRateLimit(h http.Header) {
	values := h.Values("RateLimit")
	quotas, ok := policies(values)
	if !ok {
		quotas, ok = dictionary(values)
	}
	if !ok && len(values) == 0 {
		quotas, ok = numbers(h)
	}
	h.Del("RateLimit")
	if !ok {
		return
	}
	for _, q := range quotas {
		h.Add("RateLimit", fmt.Sprintf(`"default";r=%d;t=%d`, q.remaining, q.reset))
	}
}

func policies(values []string) (quotas []quota, ok bool) {
	list, err := httpsfv.UnmarshalList(values)
	if err != nil || len(list) == 0 {
		return nil, false
	}
	for _, member := range list {
		item, isItem := member.(httpsfv.Item)
		if !isItem {
			return nil, false
		}
		q, ok := quotaOf(item.Params.Get, "r", "t")
		if !ok {
			return nil, false
		}
		quotas = append(quotas, q)
	}
	return quotas, true
}

func dictionary(values []string) ([]quota, bool) {
	d, err := httpsfv.UnmarshalDictionary(values)
	if err != nil {
		return nil, false
	}
	q, ok := quotaOf(func(key string) (any, bool) {
		member, ok := d.Get(key)
		item, isItem := member.(httpsfv.Item)
		return item.Value, ok && isItem
	}, "remaining", "reset")
	return []quota{q}, ok
}

func numbers(h http.Header) ([]quota, bool) {
	q, ok := quotaOf(func(key string) (any, bool) {
		n, err := strconv.ParseInt(h.Get(key), 10, 64)
		return n, err == nil
	}, "RateLimit-Remaining", "RateLimit-Reset")
	return []quota{q}, ok
}

// quotaOf reads a quota; it must say what remains, and may say for how long.
func quotaOf(get func(string) (any, bool), remaining, reset string) (q quota, ok bool) {
	left, found := get(remaining)
	if q.remaining, ok = left.(int64); !found || !ok || q.remaining < 0 {
		return quota{}, false
	}
	if v, found := get(reset); found {
		if q.reset, ok = v.(int64); !ok || q.reset < 0 {
			return quota{}, false
		}
	}
	return q, true
}
