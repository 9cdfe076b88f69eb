// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mailsink

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// longestRecipient is as much of an address as a file's name has.
const longestRecipient = 100

// nameFormat is that of a mail's file.
var nameFormat = regexp.MustCompile(`^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)-(.{1,100})-([1-9]\d{0,17})\.eml$`)

// fileName is that of a mail's file: no character in it means anything to a shell or
// to a file system.
func fileName(at time.Time, to string, number int) string {
	return fmt.Sprintf("%s-%s-%d.eml", at.UTC().Format(time.RFC3339), cleaned(to), number)
}

func cleaned(to string) string {
	to = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("@._+-", r):
			return r
		}
		return '_'
	}, to)
	if to == "" {
		return "nobody"
	}
	return to[:min(len(to), longestRecipient)]
}

// parseName takes a file's name apart; false where it is no mail's.
func parseName(name string) (at time.Time, number int, ok bool) {
	parts := nameFormat.FindStringSubmatch(name)
	if parts == nil {
		return time.Time{}, 0, false
	}
	at, err := time.Parse(time.RFC3339, parts[1])
	if err != nil {
		return time.Time{}, 0, false
	}
	number, err = strconv.Atoi(parts[3])
	return at, number, err == nil
}
