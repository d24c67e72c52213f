package webhook

import (
	"crypto/ed25519"
	"crypto/hmac"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/bide-dev/bide"
)

const standardScheme scheme = "standard"

// The headers of Standard Webhooks.
const (
	standardID        = "webhook-id"
	standardTimestamp = "webhook-timestamp"
	standardSignature = "webhook-signature"
)

// The beginnings that say what a secret is.
const (
	sharedPrefix  = "whsec_"
	publicPrefix  = "whpk_"
	privatePrefix = "whsk_"
)

// strict refuses base64 whose unused last bits are set, so that bytes have one
// text only.
var strict = base64.StdEncoding.Strict()

// Standard verifies deliveries by Standard Webhooks
// (https://www.standardwebhooks.com): the id, the time and the body are signed
// together. A secret is either whsec_ and the base64 of 24 to 64 bytes, for v1
// signatures (HMAC-SHA256), or whpk_ and the base64 of an Ed25519 public key,
// for v1a. One signature of the header must match one of the secrets, so both
// sides can replace theirs without a gap.
//
// The specification asks of senders that an id has no dot, since the dot divides
// what is signed. Here an id with a dot is refused: id, time and body could be
// divided anew without breaking the signature.
func Standard(secrets ...string) (Verifier, error) {
	if err := checkSecrets(secrets); err != nil {
		return nil, err
	}
	v := &standard{}
	for i, secret := range secrets {
		field := fmt.Sprintf("secrets[%d]", i)
		switch {
		case strings.HasPrefix(secret, publicPrefix):
			key, err := decodeKey(field, publicPrefix, secret)
			if err != nil {
				return nil, err
			}
			if len(key) != ed25519.PublicKeySize {
				return nil, &bide.InvalidError{Field: field, Reason: fmt.Sprintf("is %d bytes after whpk_; an Ed25519 public key has %d", len(key), ed25519.PublicKeySize)}
			}
			v.public = append(v.public, key)
		case strings.HasPrefix(secret, privatePrefix):
			return nil, &bide.InvalidError{Field: field, Reason: "is the sender's private key; give the whpk_ one, and keep this with the sender alone"}
		default:
			key, err := sharedKey(field, secret)
			if err != nil {
				return nil, err
			}
			v.shared = append(v.shared, key)
		}
	}
	return v, nil
}

// sharedKey reads a whsec_ secret.
func sharedKey(field, secret string) ([]byte, error) {
	key, err := decodeKey(field, sharedPrefix, secret)
	if err != nil {
		return nil, err
	}
	if len(key) < 24 || len(key) > 64 {
		return nil, &bide.InvalidError{Field: field, Reason: fmt.Sprintf("is %d bytes after whsec_; Standard Webhooks wants 24 to 64 random ones", len(key))}
	}
	return key, nil
}

// decodeKey returns the bytes behind a prefix. Its errors do not show the secret.
func decodeKey(field, prefix, secret string) ([]byte, error) {
	text, ok := strings.CutPrefix(secret, prefix)
	if !ok {
		return nil, &bide.InvalidError{Field: field, Reason: "begins with none of whsec_ (shared secret), whpk_ (public key) and whsk_ (private key); give it as the sender shows it"}
	}
	key, err := strict.DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") {
		return nil, &bide.InvalidError{Field: field, Reason: "is not base64 after " + prefix + "; give it as the sender shows it"}
	}
	return key, nil
}

type standard struct {
	shared [][]byte
	public []ed25519.PublicKey
}

// Verify implements [Verifier].
func (v *standard) Verify(h http.Header, body []byte, now time.Time) (Delivery, error) {
	id, err := standardScheme.header(h, standardID)
	if err != nil {
		return Delivery{}, err
	}
	timestamp, err := standardScheme.header(h, standardTimestamp)
	if err != nil {
		return Delivery{}, err
	}
	signatures, err := standardScheme.header(h, standardSignature)
	if err != nil {
		return Delivery{}, err
	}
	if fault := standardIDFault(id); fault != "" {
		return Delivery{}, standardScheme.refuse("%s %s", standardID, fault)
	}
	at, err := standardScheme.at(standardTimestamp, timestamp, now)
	if err != nil {
		return Delivery{}, err
	}
	if strings.Count(signatures, " ") >= maxSignatures {
		return Delivery{}, standardScheme.refuse("%s has more than %d signatures", standardSignature, maxSignatures)
	}
	if !v.matches(strings.Split(signatures, " "), signedContent(id, timestamp, body)) {
		return Delivery{}, standardScheme.refuse(noMatch)
	}
	return Delivery{ID: id, At: at}, nil
}

func (v *standard) matches(signatures []string, content []byte) bool {
	var sums [][]byte
	for _, key := range v.shared {
		sums = append(sums, []byte(base64.StdEncoding.EncodeToString(sumHMAC(key, content))))
	}
	for _, signature := range signatures {
		switch version, text, _ := strings.Cut(signature, ","); version {
		case "v1":
			for _, sum := range sums {
				if hmac.Equal(sum, []byte(text)) {
					return true
				}
			}
		case "v1a":
			if len(text) != strict.EncodedLen(ed25519.SignatureSize) {
				continue
			}
			raw, err := strict.DecodeString(text)
			if err != nil {
				continue
			}
			for _, key := range v.public {
				if ed25519.Verify(key, content, raw) {
					return true
				}
			}
		}
	}
	return false
}

// signedContent is what is signed: {id}.{timestamp}.{body}.
func signedContent(id, timestamp string, body []byte) []byte {
	content := make([]byte, 0, len(id)+len(timestamp)+len(body)+2)
	content = append(content, id...)
	content = append(content, '.')
	content = append(content, timestamp...)
	content = append(content, '.')
	return append(content, body...)
}

// standardIDFault says what is wrong with a webhook-id, or "".
func standardIDFault(id string) string {
	if strings.Contains(id, ".") {
		return "has a dot, which divides what is signed"
	}
	return idFault(id)
}
