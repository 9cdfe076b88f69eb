// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package parameters

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Kind is what values a parameter has.
type Kind struct {
	// Allowed says it, as in "must be true or false".
	Allowed string
	// fits tells whether a value, as JSON with numbers as [json.Number], is one.
	fits func(value any) bool
}

// Flag is true or false.
var Flag = Kind{"true or false", func(value any) bool { _, ok := value.(bool); return ok }}

// The other kinds.
var (
	seconds      = whole("seconds", 1, 86400)
	name         = Kind{"a name of lower-case letters, digits, - and ., or empty", text(`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$`)}
	names        = Kind{"a list of names of lower-case letters, digits, - and .", texts(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)}
	adoptOrOwn   = Kind{"adopt or own", text(`^(adopt|own)$`)}
	quantity     = Kind{"a quantity above 0 such as 100m or 256Mi", text(`^([1-9][0-9]*|0\.[0-9]*[1-9])(m|[kMGT]|[KMGT]i)?$`)}
	paths        = Kind{"a list of absolute paths without . and .., such as /data", texts(`^/(([^/.]|\.[^/.]|\.\.[^/])[^/]*/?)*$`)}
	capabilities = Kind{"a list of capabilities in upper case without CAP_, such as SYS_ADMIN", listOf(func(value any) bool {
		text, ok := value.(string)
		return ok && capability.MatchString(text) && !strings.HasPrefix(text, "CAP_")
	})}
)

var capability = regexp.MustCompile(`^[A-Z_]+$`)

// whole are numbers without a fraction, of a unit, between two bounds.
func whole(unit string, least, most int64) Kind {
	return Kind{fmt.Sprintf("a whole number of %s from %d to %d", unit, least, most), func(value any) bool {
		number, ok := value.(json.Number)
		if !ok {
			return false
		}
		n, err := strconv.ParseInt(number.String(), 10, 64)
		return err == nil && least <= n && n <= most
	}}
}

// text are texts that match a pattern.
func text(pattern string) func(any) bool {
	matching := regexp.MustCompile(pattern)
	return func(value any) bool {
		text, ok := value.(string)
		return ok && matching.MatchString(text)
	}
}

// texts are lists of such.
func texts(pattern string) func(any) bool { return listOf(text(pattern)) }

func listOf(one func(any) bool) func(any) bool {
	return func(value any) bool {
		list, ok := value.([]any)
		return ok && !slices.ContainsFunc(list, func(element any) bool { return !one(element) })
	}
}

// decoded is a JSON object, with numbers as they are written.
func decoded(raw []byte) (map[string]any, error) {
	reader := json.NewDecoder(bytes.NewReader(raw))
	reader.UseNumber()
	var fields map[string]any
	if err := reader.Decode(&fields); err != nil {
		return nil, err
	}
	if _, err := reader.Token(); err != io.EOF {
		return nil, errors.New("something follows the object")
	}
	return fields, nil
}
