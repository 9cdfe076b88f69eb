// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"fmt"
	"regexp"
	"strconv"

	"sluice.dev/api/period"
	"sluice.dev/lifecycle/notices/message"
)

// selfService is the code of what the department grants by itself. Mails say it without
// one.
const selfService = "SelfService"

// because is why an Extension was answered as it was: a code, and the figures that it
// has. Statuses and events have it as a sentence, and Notices as inputs, which mails say
// in the recipient's language.
type because struct {
	code          string
	used, allowed int
	each, window  period.Duration
}

// String is the sentence.
func (b because) String() string {
	switch b.code {
	case message.BecauseNothingGranted:
		return "the department grants nothing by itself"
	case message.BecauseTooLong:
		return fmt.Sprintf("the department grants at most %s at once by itself", b.each)
	case message.BecauseLimitReached:
		return fmt.Sprintf("the department grants %d within %s by itself, and %d were", b.allowed, b.window, b.used)
	case message.BecauseWorkloadGone:
		return "there is no such workload any more"
	case message.BecauseExtendedTooOften:
		return fmt.Sprintf("it was extended %d times already, which is the most", b.used)
	case selfService:
		return fmt.Sprintf("granted by the department's self-service: %d of %d within %s", b.used, b.allowed, b.window)
	}
	return b.code
}

// inputs are a Notice's.
func (b because) inputs() map[string]string {
	inputs := map[string]string{}
	if b.code != selfService {
		inputs[message.InputBecause] = b.code
	}
	for key, n := range map[string]int{message.InputUsed: b.used, message.InputAllowed: b.allowed} {
		if n > 0 {
			inputs[key] = strconv.Itoa(n)
		}
	}
	for key, length := range map[string]period.Duration{message.InputEach: b.each, message.InputWindow: b.window} {
		if !length.IsZero() {
			inputs[key] = length.String()
		}
	}
	return inputs
}

// sentences are those whose figures are read back from a status.
var sentences = map[string]*regexp.Regexp{
	message.BecauseNothingGranted:   regexp.MustCompile(`^the department grants nothing by itself$`),
	message.BecauseTooLong:          regexp.MustCompile(`^the department grants at most (?P<each>\S+) at once by itself$`),
	message.BecauseLimitReached:     regexp.MustCompile(`^the department grants (?P<allowed>\d+) within (?P<window>\S+) by itself, and (?P<used>\d+) were$`),
	message.BecauseWorkloadGone:     regexp.MustCompile(`^there is no such workload any more$`),
	message.BecauseExtendedTooOften: regexp.MustCompile(`^it was extended (?P<used>\d+) times already, which is the most$`),
	selfService:                     regexp.MustCompile(`^granted by the department's self-service: (?P<used>\d+) of (?P<allowed>\d+) within (?P<window>\S+)$`),
}

// becauseOf reads a sentence of [because]; false of any other.
func becauseOf(sentence string) (because, bool) {
	for code, form := range sentences {
		found := form.FindStringSubmatch(sentence)
		if found == nil {
			continue
		}
		b := because{code: code}
		for i, name := range form.SubexpNames() {
			var err error
			switch name {
			case "used":
				b.used, err = strconv.Atoi(found[i])
			case "allowed":
				b.allowed, err = strconv.Atoi(found[i])
			case "each":
				b.each, err = period.ParseDuration(found[i])
			case "window":
				b.window, err = period.ParseDuration(found[i])
			}
			if err != nil {
				return because{}, false
			}
		}
		return b, b.String() == sentence
	}
	return because{}, false
}
