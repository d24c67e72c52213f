package bide

import (
	"encoding/json"
	"fmt"
)

// MaxPayload is the most bytes of JSON that one input, result, signal or value
// may have.
const MaxPayload = 2 << 20

// encode makes JSON of v. What v is, should that fail, is said in two parts, so
// that the hot path need not join them.
func encode(what, name string, v any) (json.RawMessage, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, &CodecError{Field: what + name, Message: fmt.Sprintf("cannot be kept as JSON: %v", err)}
	}
	if len(data) > MaxPayload {
		return nil, &PayloadTooLargeError{Field: what + name, Size: len(data), Limit: MaxPayload}
	}
	return data, nil
}

func decode[T any](what, name string, data json.RawMessage) (T, error) {
	var v T
	if len(data) == 0 {
		return v, nil
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return v, &CodecError{Field: what + name, Message: fmt.Sprintf("the kept JSON does not fit %T: %v", v, err)}
	}
	return v, nil
}
