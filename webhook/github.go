package webhook

import (
	"net/http"
	"strings"
	"time"
)

const githubScheme scheme = "github"

// GitHub verifies deliveries by X-Hub-Signature-256. Several secrets serve while
// one is replaced.
//
// GitHub signs the body alone: neither X-GitHub-Delivery nor a time. So there is no
// id to trust, and the body stands in for it: whoever has seen one delivery cannot
// make two of it under another id.
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
		if !hexMatches([]string{signature}, keys, body) {
			return Delivery{}, githubScheme.refuse(noMatch)
		}
		return Delivery{}, nil
	}), nil
}
