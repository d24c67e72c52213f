package webhook_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/webhook"
)

// invalid fails the test unless the error names the field, says what is wrong
// and does not tell the secret.
func invalid(t *testing.T, err error, field, reason, secret string) {
	t.Helper()
	var bad *bide.InvalidError
	if !errors.As(err, &bad) || bad.Field != field || !strings.Contains(bad.Reason, reason) {
		t.Errorf("%v, want an InvalidError of %s with %q", err, field, reason)
	}
	if secret = strings.TrimSpace(secret); len(secret) > 12 && strings.Contains(err.Error(), secret[6:]) {
		t.Errorf("%v tells the secret", err)
	}
}

func TestBadSecrets(t *testing.T) {
	encoded := func(prefix string, n int) string {
		return prefix + base64.StdEncoding.EncodeToString(make([]byte, n))
	}
	type constructor = func(...string) (webhook.Verifier, error)
	for name, newVerifier := range map[string]constructor{
		"standard": webhook.Standard, "github": webhook.GitHub, "stripe": webhook.Stripe, "slack": webhook.Slack,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newVerifier()
			invalid(t, err, "secrets", "give one", "")
			_, err = newVerifier("")
			invalid(t, err, "secrets[0]", "is empty", "")
			_, err = newVerifier(sharedSecret, sharedSecret+"\n")
			invalid(t, err, "secrets[1]", "white space", sharedSecret)
		})
	}
	for _, c := range []struct{ secret, reason string }{
		{encoded("whsec_", 23), "is 23 bytes"},
		{encoded("whsec_", 65), "is 65 bytes"},
		{encoded("whpk_", 31), "is 31 bytes"},
		{encoded("whpk_", 33), "is 33 bytes"},
		{"whsec_", "is 0 bytes"},
		{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS!", "not base64"},
		{"whsec_MfKQ9r8GKYqrTw\njUPD8ILPZIo2LaLaSw", "not base64"},
		{strings.TrimPrefix(sharedSecret, "whsec_"), "begins with none"},
		{strings.ToUpper(sharedSecret), "begins with none"},
		{pairSecret, "private key"},
	} {
		v, err := webhook.Standard(otherSecret, c.secret)
		if v != nil {
			t.Errorf("%q: a Verifier", c.secret)
		}
		invalid(t, err, "secrets[1]", c.reason, c.secret)
	}
	for _, n := range []int{24, 32, 64} {
		if _, err := webhook.Standard(encoded("whsec_", n)); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestSignStandard(t *testing.T) {
	for _, c := range []struct{ secret, want string }{
		{sharedSecret, sharedSum},
		{seedSecret, seedSum},
		{pairSecret, pairSum},
	} {
		h, err := webhook.SignStandard(c.secret, messageID, messageAt.Add(999*time.Millisecond), []byte(messageBody))
		if err != nil || h.Get("webhook-signature") != c.want || h.Get("webhook-id") != messageID || h.Get("webhook-timestamp") != "1614265330" {
			t.Errorf("%v, %v, want %s", h, err, c.want)
		}
	}
	for _, c := range []struct {
		secret, id    string
		at            time.Time
		field, reason string
	}{
		{"", messageID, messageAt, "secret", "begins with none"},
		{"whsec_c2hvcnQ=", messageID, messageAt, "secret", "is 5 bytes"},
		{"whsk_c2hvcnQ=", messageID, messageAt, "secret", "is 5 bytes"},
		{"whsk_***", messageID, messageAt, "secret", "not base64"},
		{"whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlaaaaaaaaaaAJ6p9lMicMFs6Kvg==", messageID, messageAt, "secret", "not the one"},
		{publicKey, messageID, messageAt, "secret", "begins with none"},
		{sharedSecret, "", messageAt, "id", "is empty"},
		{sharedSecret, "a.1614265330", messageAt, "id", "has a dot"},
		{sharedSecret, "a\r\nX-Admin: 1", messageAt, "id", "printable ASCII"},
		{sharedSecret, "a b", messageAt, "id", "printable ASCII"},
		{sharedSecret, strings.Repeat("a", 257), messageAt, "id", "longer than 256"},
		{sharedSecret, messageID, time.Time{}, "at", "before 1970"},
	} {
		h, err := webhook.SignStandard(c.secret, c.id, c.at, nil)
		if h != nil {
			t.Errorf("%q: headers %v", c.id, h)
		}
		invalid(t, err, c.field, c.reason, c.secret)
	}
}
