package webhook

import (
	"net/http"
	"strings"
	"time"
)

const slackScheme scheme = "slack"

// Slack verifies requests by X-Slack-Signature and X-Slack-Request-Timestamp,
// with an app's signing secret. Slack has no id for a request, so the Delivery
// has none.
func Slack(secrets ...string) (Verifier, error) {
	keys, err := plainKeys(secrets)
	if err != nil {
		return nil, err
	}
	return VerifierFunc(func(h http.Header, body []byte, now time.Time) (Delivery, error) {
		header, err := slackScheme.header(h, "X-Slack-Signature")
		if err != nil {
			return Delivery{}, err
		}
		timestamp, err := slackScheme.header(h, "X-Slack-Request-Timestamp")
		if err != nil {
			return Delivery{}, err
		}
		signature, ok := strings.CutPrefix(header, "v0=")
		if !ok {
			return Delivery{}, slackScheme.refuse("X-Slack-Signature does not begin with v0=")
		}
		at, err := slackScheme.at("X-Slack-Request-Timestamp", timestamp, now)
		if err != nil {
			return Delivery{}, err
		}
		if !hexMatches([]string{signature}, keys, []byte("v0:"), []byte(timestamp), []byte(":"), body) {
			return Delivery{}, slackScheme.refuse(noMatch)
		}
		return Delivery{At: at}, nil
	}), nil
}
