package api

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

type runList struct {
	Runs []toldRun
	Next *string `json:"next_page_token"`
}

func TestList(t *testing.T) {
	inBubble(t, func(s *site) {
		for i := range 120 {
			s.call("POST", "/v1/runs", fmt.Sprintf(`{"workflow":"w%d","id":"r-%03d","queue":"q%d","labels":{"team":"t%d","even":"%t"},"input":"secret"}`, i%2, i, i%3, i%4, i%2 == 0)).want(202)
		}
		s.call("POST", "/v1/runs/r-007/pause", "")
		s.call("POST", "/v1/runs/r-008/terminate", "")
		for _, c := range []struct {
			query string
			want  int
		}{
			{"", 120},
			{"page_size=7", 120},
			{"workflow=w1", 60},
			{"queue=q2", 40},
			{"label=team:t1", 30},
			{"label=team:t1&label=even:false", 30},
			{"label=team:t1&label=even:true", 0},
			{"id_prefix=r-00", 10},
			{"state=paused", 1},
			{"state=paused,terminated&page_size=1", 2},
			{"state=paused&state=terminated", 2},
			{"state=queued", 118},
			{"workflow=w1&queue=q2&label=team:t3&page_size=3", 10},
			{"parent=none", 0},
		} {
			seen, last := map[string]bool{}, "s"
			for page := "/v1/runs?" + c.query; page != ""; {
				a := s.call("GET", page, "").want(200)
				var list runList
				a.into(&list)
				for _, r := range list.Runs {
					if seen[r.ID] || r.ID >= last || r.Input != nil {
						t.Errorf("%s: %s after %s, input %s", c.query, r.ID, last, r.Input)
					}
					seen[r.ID], last = true, r.ID
				}
				page, _, _ = strings.Cut(strings.TrimPrefix(a.header.Get("Link"), "<"), ">")
				if (page == "") != (list.Next == nil) || list.Next != nil && !strings.Contains(page, *list.Next) {
					t.Errorf("%s: Link %q, token %v", c.query, page, list.Next)
				}
			}
			if len(seen) != c.want {
				t.Errorf("%s: %d runs, want %d", c.query, len(seen), c.want)
			}
		}
	})
}

func TestListRefuses(t *testing.T) {
	inBubble(t, func(s *site) {
		for range 3 {
			s.call("POST", "/v1/runs", `{"workflow":"w","queue":"q"}`)
		}
		for _, empty := range []string{"state", "workflow", "queue", "parent", "id_prefix", "label", "page_size", "page_token"} {
			s.call("GET", "/v1/runs?"+empty+"=", "").want(200, `"workflow":"w"`)
		}
		var list runList
		s.call("GET", "/v1/runs?page_size=1&workflow=w", "").into(&list)
		token := *list.Next
		s.call("GET", "/v1/runs?page_size=2&workflow=w&page_token="+token, "").want(200)
		for query, field := range map[string]string{
			"page_size=0":                          "page_size",
			"page_size=201":                        "page_size",
			"page_size=x":                          "page_size",
			"state=done":                           "state",
			"state=failed,":                        "state",
			"workflow=w&workflow=v":                "workflow",
			"label=team":                           "label",
			"label=:x":                             "label",
			"label=a:1&label=a:2":                  "label",
			"stat=failed":                          "stat",
			"workflow=%00":                         "workflow",
			"id_prefix=%ff":                        "id_prefix",
			"workflow=%zz":                         "query",
			"page_token=nonsense":                  "page_token",
			"page_token=!":                         "page_token",
			"page_token=" + token:                  "page_token", // made for another filter
			"workflow=w&page_token=" + token + "A": "page_token",
			"page_token=" + base64.RawURLEncoding.EncodeToString([]byte(filters(url.Values{})+"gone")): "page_token",
		} {
			s.call("GET", "/v1/runs?"+query, "").refused(400, "invalid-input", `"field":"`+field+`"`)
		}
	})
}

// A page begins where the one before ended, also when runs of that were purged since.
func TestPageAfterPurge(t *testing.T) {
	inBubble(t, func(s *site) {
		for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
			s.call("POST", "/v1/runs", `{"workflow":"w","id":"`+id+`"}`)
		}
		var list runList
		s.call("GET", "/v1/runs?page_size=3", "").into(&list) // f e d
		for _, id := range []string{"d", "e"} {
			s.call("POST", "/v1/runs/"+id+"/terminate", "").want(200)
			s.call("DELETE", "/v1/runs/"+id+"?purge=true", "").want(204)
		}
		token := *list.Next
		s.call("GET", "/v1/runs?page_size=3&page_token="+token, "").into(&list)
		if len(list.Runs) != 3 || list.Runs[0].ID != "c" || list.Runs[2].ID != "a" {
			t.Errorf("the page after: %+v", list.Runs)
		}
		s.call("POST", "/v1/runs/f/terminate", "").want(200)
		s.call("DELETE", "/v1/runs/f?purge=true", "").want(204)
		s.call("GET", "/v1/runs?page_size=3&page_token="+token, "").refused(400, "invalid-input", "no more")
	})
}
