package webhook

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

const stripeScheme scheme = "stripe"

// Stripe verifies deliveries by Stripe-Signature, with an endpoint's signing
// secret (whsec_…, used as it stands). Only v1 signatures count. The id is the
// "id" of the event in the body, which is read after the signature holds; a body
// that has none gives "".
func Stripe(secrets ...string) (Verifier, error) {
	keys, err := plainKeys(secrets)
	if err != nil {
		return nil, err
	}
	return VerifierFunc(func(h http.Header, body []byte, now time.Time) (Delivery, error) {
		header, err := stripeScheme.header(h, "Stripe-Signature")
		if err != nil {
			return Delivery{}, err
		}
		var timestamps, signatures []string
		for part := range strings.SplitSeq(header, ",") {
			switch key, value, _ := strings.Cut(part, "="); key {
			case "t":
				timestamps = append(timestamps, value)
			case "v1":
				signatures = append(signatures, value)
			}
		}
		if len(timestamps) != 1 {
			return Delivery{}, stripeScheme.refuse("Stripe-Signature has %d times (t=), not one", len(timestamps))
		}
		if len(signatures) == 0 || len(signatures) > maxSignatures {
			return Delivery{}, stripeScheme.refuse("Stripe-Signature has %d signatures (v1=), not 1 to %d", len(signatures), maxSignatures)
		}
		at, err := stripeScheme.at("Stripe-Signature t", timestamps[0], now)
		if err != nil {
			return Delivery{}, err
		}
		if !hexMatches(signatures, keys, []byte(timestamps[0]), []byte("."), body) {
			return Delivery{}, stripeScheme.refuse(noMatch)
		}
		return Delivery{ID: eventID(body), At: at}, nil
	}), nil
}

// eventID returns the id of an event in JSON, or "".
func eventID(body []byte) string {
	var event struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(body, &event) != nil || idFault(event.ID) != "" {
		return ""
	}
	return event.ID
}
