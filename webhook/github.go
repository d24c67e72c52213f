package webhook

import (
	"net/http"
	"strings"
	"time"
)

const githubScheme scheme = "github"

// GitHub verifies deliveries by X-Hub-Signature-256. The id is X-GitHub-Delivery,
// which GitHub keeps when it sends again. Several secrets serve while one is
// replaced.
//
// GitHub signs the body alone: neither the id nor a time. Whoever has seen one
// delivery can send it again later, under another id.
func GitHub(secrets ...string) (Verifier, error) {
	keys, err := plainKeys(secrets)
	if err != nil {
		return nil, err
	}
	return VerifierFunc(func(h http.Header, body []byte, _ time.Time) (Delivery, error) {
		header, err := githubScheme.header(h, "X-Hub-Signature-256")
		if err != nil {
			return Delivery{}, err
		}
		signature, ok := strings.CutPrefix(header, "sha256=")
		if !ok {
			return Delivery{}, githubScheme.refuse("X-Hub-Signature-256 does not begin with sha256=")
		}
		var id string
		if len(h.Values("X-GitHub-Delivery")) > 0 {
			if id, err = githubScheme.header(h, "X-GitHub-Delivery"); err != nil {
				return Delivery{}, err
			}
			if fault := idFault(id); fault != "" {
				return Delivery{}, githubScheme.refuse("X-GitHub-Delivery %s", fault)
			}
		}
		if !hexMatches([]string{signature}, keys, body) {
			return Delivery{}, githubScheme.refuse(noMatch)
		}
		return Delivery{ID: id}, nil
	}), nil
}
