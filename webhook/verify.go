// Package webhook takes what other services send over HTTP. A [Verifier] checks
// that a delivery comes from who it says: [Standard] for senders that follow
// Standard Webhooks, [GitHub], [Stripe] and [Slack] for theirs, and
// [VerifierFunc] for any other.
package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/bide-dev/bide"
)

// Verifier checks that a delivery comes from who it says: on the raw body,
// before anything is parsed. It is safe for concurrent use.
//
// A delivery that fails gives a [*SignatureError] and no Delivery.
type Verifier interface {
	Verify(h http.Header, body []byte, now time.Time) (Delivery, error)
}

// Delivery is what the sender says of one delivery.
type Delivery struct {
	ID string    // the sender's id of the message, the same on each retry; "" if the scheme has none
	At time.Time // when this attempt was signed; zero if the scheme has no time
}

// VerifierFunc is a function as a [Verifier], for a scheme that is not here.
// Compare signatures with [hmac.Equal], and return a [*SignatureError].
type VerifierFunc func(h http.Header, body []byte, now time.Time) (Delivery, error)

// Verify calls f.
func (f VerifierFunc) Verify(h http.Header, body []byte, now time.Time) (Delivery, error) {
	return f(h, body, now)
}

// SignatureError is a delivery that was not proved to come from its sender. It
// holds nothing secret, and nothing of what was sent.
type SignatureError struct {
	Scheme string `json:"scheme"` // "standard", "github", "stripe", "slack"
	Reason string `json:"reason"`
}

func (e *SignatureError) Error() string { return "webhook: " + e.Scheme + ": " + e.Reason }

// Code returns "bad_signature".
func (e *SignatureError) Code() string { return "bad_signature" }

// What no scheme goes beyond.
const (
	tolerance     = 5 * time.Minute // between the time signed and now, either way
	maxSignatures = 16              // in one header: rotation needs two, and each costs its sender nothing
	maxID         = 256             // bytes
)

const noMatch = "no signature matches: another secret, or the body is not the bytes that were sent"

// scheme is the name of a way to sign, for its errors.
type scheme string

func (s scheme) refuse(format string, args ...any) error {
	return &SignatureError{Scheme: string(s), Reason: fmt.Sprintf(format, args...)}
}

// header returns the only value of a header. Two are refused: a proxy or a
// handler before or after this one may read the other.
func (s scheme) header(h http.Header, name string) (string, error) {
	switch values := h.Values(name); {
	case len(values) == 0 || values[0] == "":
		return "", s.refuse("header %s is missing", name)
	case len(values) > 1:
		return "", s.refuse("header %s is there %d times", name, len(values))
	default:
		return values[0], nil
	}
}

// at reads a time in seconds and refuses one that is far from now. Only digits
// are a time: the signed text must be readable in one way.
func (s scheme) at(name, seconds string, now time.Time) (time.Time, error) {
	if len(seconds) > 12 || strings.Trim(seconds, "0123456789") != "" {
		return time.Time{}, s.refuse("%s is not a time in seconds since 1970", name)
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return time.Time{}, s.refuse("%s is not a time in seconds since 1970", name)
	}
	at := time.Unix(n, 0).UTC()
	switch d := now.Sub(at); {
	case d > tolerance:
		return time.Time{}, s.refuse("%s is %v ago; the limit is %v: an old delivery sent again, or a clock is wrong", name, d.Round(time.Second), tolerance)
	case d < -tolerance:
		return time.Time{}, s.refuse("%s is %v ahead; the limit is %v: a clock is wrong", name, -d.Round(time.Second), tolerance)
	}
	return at, nil
}

// idFault says why the id of a message could not stand in a header or a key as it
// is, or "".
func idFault(id string) string {
	if len(id) > maxID {
		return fmt.Sprintf("is longer than %d bytes", maxID)
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return "has a character other than printable ASCII"
		}
	}
	return ""
}

// sumHMAC returns the HMAC-SHA256 of the parts in a row.
func sumHMAC(key []byte, parts ...[]byte) []byte {
	mac := hmac.New(sha256.New, key)
	for _, part := range parts {
		mac.Write(part)
	}
	return mac.Sum(nil)
}

// hexMatches reports whether one of the signatures is the HMAC-SHA256 of the
// parts under one of the keys. It compares text with text: hex that was changed
// from lower to upper case is no longer what was sent.
func hexMatches(signatures []string, keys [][]byte, parts ...[]byte) bool {
	for _, key := range keys {
		want := []byte(hex.EncodeToString(sumHMAC(key, parts...)))
		for _, signature := range signatures {
			if hmac.Equal(want, []byte(signature)) {
				return true
			}
		}
	}
	return false
}

// plainKeys returns secrets that are used as they are as keys.
func plainKeys(secrets []string) ([][]byte, error) {
	if err := checkSecrets(secrets); err != nil {
		return nil, err
	}
	var keys [][]byte
	for _, secret := range secrets {
		keys = append(keys, []byte(secret))
	}
	return keys, nil
}

// checkSecrets refuses what no scheme can have as a secret. An empty key is one
// that everybody knows.
func checkSecrets(secrets []string) error {
	if len(secrets) == 0 {
		return &bide.InvalidError{Field: "secrets", Reason: "give one secret, or while it is replaced the old and the new"}
	}
	for i, secret := range secrets {
		field := fmt.Sprintf("secrets[%d]", i)
		if secret == "" {
			return &bide.InvalidError{Field: field, Reason: "is empty; is the environment variable set that it comes from?"}
		}
		if strings.TrimSpace(secret) != secret {
			return &bide.InvalidError{Field: field, Reason: "begins or ends with white space, which the sender's has not; trim it"}
		}
	}
	return nil
}
