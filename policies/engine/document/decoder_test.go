// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/ast"
)

// decodeStandard decodes a text with encoding/json and OPA, without managed fields. It
// returns false for a text that Decode must reject: invalid JSON, a number that is not a
// float64, a duplicate key, or too deep.
func decodeStandard(text []byte) (ast.Value, bool) {
	if !json.Valid(text) {
		return nil, false
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	value, err := decodeStandardValue(decoder, 0)
	if err != nil {
		return nil, false
	}
	removeManagedFields(value, false)
	term, err := ast.InterfaceToValue(value)
	return term, err == nil
}

// decodeStandardValue decodes one value and rejects duplicate keys, which encoding/json
// accepts.
func decodeStandardValue(decoder *json.Decoder, depth int) (any, error) {
	if depth > MaxDepth {
		return nil, ErrTooDeep
	}
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Number:
		_, err := ParseFinite(token.String())
		return token, err
	case json.Delim:
		if token == '[' {
			list := []any{}
			for decoder.More() {
				element, err := decodeStandardValue(decoder, depth+1)
				if err != nil {
					return nil, err
				}
				list = append(list, element)
			}
			_, err := decoder.Token()
			return list, err
		}
		fields := map[string]any{}
		for decoder.More() {
			key, err := decoder.Token()
			if err != nil {
				return nil, err
			}
			value, err := decodeStandardValue(decoder, depth+1)
			if err != nil {
				return nil, err
			}
			if _, twice := fields[key.(string)]; twice {
				return nil, errors.New("twice")
			}
			fields[key.(string)] = value
		}
		_, err := decoder.Token()
		return fields, err
	}
	return token, nil
}

func removeManagedFields(value any, inMetadata bool) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			removeManagedFields(element, false)
		}
	case map[string]any:
		if inMetadata {
			delete(value, managedFields)
		}
		for key, field := range value {
			removeManagedFields(field, key == metadataField)
		}
	}
}

func TestDecodeMatchesEncodingJSON(t *testing.T) {
	tests := map[string]string{
		"scalars":                `[null, true, false, "text", 0, -0, 7, -12, 3.25, 1e3, -2.5E-2, 9223372036854775807, 100000000000000000000]`,
		"space everywhere":       " \n\t{ \"a\" : [ 1 , 2 ] , \"b\" : { } }\r\n ",
		"empty values":           `{"a": {}, "b": [], "c": "", "": 1}`,
		"escapes":                `["\"\\\/\b\f\n\r\t", "\u00e4\u20ac\ud83d\ude00", "\u0000"]`,
		"lone surrogates":        `["\ud83d", "\ud83dx", "\ud83d\u0041", "\ude00\ud83d", "\ud83d\ud83d\ude00"]`,
		"text that is not UTF-8": "[\"a\xffb\", \"\xc3\", \"\xed\xa0\x80\", \"ä€😀\"]",
		"managed fields":         `{"metadata": {"name": "a", "managedFields": [{"x": [1, {"y": null}]}, "\n", -1.5e3, true, false]}, "managedFields": 1}`,
		"nested managed fields":  `{"spec": {"template": {"metadata": {"managedFields": {}, "labels": {"managedFields": "kept"}}}}}`,
		"many keys":              `{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"j":10,"k":11}`,
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			want, ok := decodeStandard([]byte(text))
			if !ok {
				t.Fatal("the test's text is no document")
			}
			got, err := Decode([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if got.Term().Value.Compare(want) != 0 {
				t.Errorf("got  %v\nwant %v", got.Term(), want)
			}
		})
	}
}

func TestDecodeErrors(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"empty text":                     {``, "invalid JSON: unexpected end, expected a value"},
		"not JSON":                       {`hello`, "invalid JSON at byte 0: expected a value, found 'h'"},
		"more than one value":            {`{} {}`, "invalid JSON at byte 3: expected the end, found '{'"},
		"an open object":                 {`{"a": 1`, "invalid JSON: unexpected end, expected , or }"},
		"a comma too many":               {`[1,]`, "invalid JSON at byte 3: expected a value, found ']'"},
		"a key that is not a string":     {`{1: 2}`, "invalid JSON at byte 1: expected a key, found '1'"},
		"no colon":                       {`{"a" 2}`, "invalid JSON at byte 5: expected :, found '2'"},
		"an unknown word":                {`[nul]`, "invalid JSON at byte 1: expected null, found 'n'"},
		"an open string":                 {`"abc`, "invalid JSON: unexpected end, expected the end of a string"},
		"a line break in a string":       {"\"a\nb\"", "invalid JSON at byte 2: expected no control character in a string, found '\\n'"},
		"an unknown escape":              {`"\x"`, "invalid JSON at byte 2: expected an escape, found 'x'"},
		"half an escape":                 {`"\u12g4"`, "invalid JSON at byte 5: expected a hexadecimal digit, found 'g'"},
		"a leading zero":                 {`01`, "invalid JSON at byte 1: expected the end, found '1'"},
		"half a fraction":                {`1.`, "invalid JSON: unexpected end, expected a digit"},
		"half an exponent":               {`[1e]`, "invalid JSON at byte 3: expected a digit, found ']'"},
		"a minus alone":                  {`-`, "invalid JSON: unexpected end, expected a digit"},
		"a number that is not a float64": {`[1e400]`, "invalid JSON at byte 1: the number 1e400 is too large"},
		"a number with a huge exponent":  {`1e-999999999`, "invalid JSON at byte 0: the number 1e-999999999 is too small"},
		"a number with too many digits":  {strings.Repeat("1", 500), "invalid JSON at byte 0: a number has 500 digits; 400 are allowed"},
		"a duplicate key":                {`{"a": {"x": 1, "x": 1}}`, `invalid JSON before byte 22: the key "x" occurs twice`},
		"a duplicate key among many":     {`{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"a":10}`, `invalid JSON before byte 62: the key "a" occurs twice`},
		"too deep":                       {strings.Repeat("[", 300) + strings.Repeat("]", 300), ErrTooDeep.Error()},
		"too deep in managed fields":     {`{"metadata": {"managedFields": ` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}}`, ErrTooDeep.Error()},
		"too large":                      {strings.Repeat(" ", maxDocumentBytes+1), ErrTooLarge.Error()},
		"wrong managed fields":           {`{"metadata": {"managedFields": [tru]}}`, "invalid JSON at byte 32: expected true, found 't'"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Decode([]byte(tt.text))
			if err == nil || err.Error() != tt.want {
				t.Errorf("got %v\nwant %s", err, tt.want)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"metadata": {"managedFields": [{"a": 1}], "name": "x"}, "spec": {"containers": [{"env": [{"name": "A", "value": "\u00e4\ud83d"}]}]}}`,
		`[1, -2.5e3, 1e400, "a\nb", true, null, {"a": 1, "a": 2}]`, "\"\xff\"", `{"":""}`, `[[[[]]]]`, `0123`, ` 1 `, `"\u`, `{"a":1,}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		want, ok := decodeStandard(text)
		got, err := Decode(text)
		if ok != (err == nil) {
			t.Fatalf("encoding/json reads it: %v, Decode: %v", ok, err)
		}
		if !ok {
			return
		}
		if got.Term().Value.Compare(want) != 0 {
			t.Fatalf("got  %v\nwant %v", got.Term(), want)
		}
	})
}

func TestDocuments(t *testing.T) {
	pod := map[string]any{"metadata": map[string]any{"name": "a", "managedFields": []any{1}}, "count": 3}
	document, err := FromGo(pod)
	if err != nil {
		t.Fatal(err)
	}
	if got := document.Field("metadata").Field("name"); !got.Equal(New("a")) {
		t.Errorf("metadata.name is %v", got)
	}
	for _, absent := range []Document{{}, document.Field("spec"), document.Field("count").Field("x"), New(nil)} {
		if !absent.IsAbsent() {
			t.Errorf("%v is not absent", absent)
		}
	}
	changed := document.WithField("count", document.Field("metadata")).WithField("spec", document)
	got, err := json.Marshal([]Document{document, changed, changed.WithField("spec", Document{}), {}})
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{"count":3,"metadata":{"name":"a"}},` +
		`{"count":{"name":"a"},"metadata":{"name":"a"},"spec":{"count":3,"metadata":{"name":"a"}}},` +
		`{"count":{"name":"a"},"metadata":{"name":"a"}},null]`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := FromGo(func() {}); err == nil || !strings.HasPrefix(err.Error(), "convert func() for policies: ") {
		t.Errorf("a function converts: %v", err)
	}
}
