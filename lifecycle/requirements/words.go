// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package requirements

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// place is a path as people write it: data[config.yaml].fairSharing.
func place(path []string) string {
	var b strings.Builder
	for _, step := range path {
		switch {
		case !plainKey.MatchString(step):
			b.WriteString("[" + step + "]")
		case b.Len() > 0:
			b.WriteString("." + step)
		default:
			b.WriteString(step)
		}
	}
	return b.String()
}

// shown is a value, as far as it fits in a message.
func shown(value any) string {
	switch value := value.(type) {
	case nil:
		return "not there"
	case string:
		return strconv.Quote(short(value))
	case []any:
		return shownList(value)
	case map[string]any, map[any]any:
		return "an object"
	}
	return short(fmt.Sprint(value))
}

// shownList is a list in full where it is a short one of simple values.
func shownList(list []any) string {
	const most = 10
	texts := make([]string, 0, most)
	for _, element := range list {
		switch element.(type) {
		case []any, map[string]any, map[any]any:
			return fmt.Sprintf("a list of %d", len(list))
		}
		if len(texts) == most {
			return fmt.Sprintf("a list of %d", len(list))
		}
		texts = append(texts, shown(element))
	}
	return short("[" + strings.Join(texts, ", ") + "]")
}

// short is a text of at most a line or two.
func short(text string) string {
	const most = 200
	runes := 0
	for at := range text {
		if runes++; runes > most {
			return text[:at] + "…"
		}
	}
	return text
}
