// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workbench

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"sluice.dev/policies/merge"
)

// Case is an example object, with what the policies shall decide. A file *.case.yaml has one or more, separated by ---.
type Case struct {
	// Name describes the case. It is required, and unique in its file.
	Name string `json:"name"`
	// Object is a Pod, a Job or another workload with pod templates. It is required.
	Object map[string]any `json:"object"`
	// Project is the name of a project in the folder. Default: the example project "sample" with the guarantee of 2 GPUs
	// and the limit 4 in one node pool with whole GPUs.
	Project string `json:"project,omitempty"`
	// Namespace has the labels and annotations of the project's namespace.
	Namespace NamespaceMetadata `json:"namespace,omitempty"`
	// User is the name of the user who creates the object. Default: anna.
	User string `json:"user,omitempty"`
	// Groups are the groups of the user.
	Groups []string `json:"groups,omitempty"`
	// Now is the time of the request, as RFC 3339. Default: Monday, 2026-01-05T12:00:00Z.
	Now string `json:"now,omitempty"`
	// Parameters replace those of the policies with these names. Those of a built-in policy are set as in its mirror: parameters
	// that are not named stay as shipped.
	Parameters map[string]runtime.RawExtension `json:"parameters,omitempty"`
	// Expect is what the policies shall decide. It is required.
	Expect Expectation `json:"expect"`

	// File is where the case is.
	File string `json:"-"`
	now  time.Time
}

// NamespaceMetadata is what policies read of a namespace beside its name.
type NamespaceMetadata struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Expectation is what the policies shall decide. At least one of its fields is required.
type Expectation struct {
	// Allowed: no policy refuses the object. That also holds for each case without Denied.
	Allowed bool `json:"allowed,omitempty"`
	// Denied are texts: the object is refused, each of them is a part of a denial, and there is no other denial.
	Denied []string `json:"denied,omitempty"`
	// Warnings are texts: each of them is a part of a warning, and there is no other warning. Default: any warnings.
	Warnings *[]string `json:"warnings,omitempty"`
	// Object is a part of the resulting object: maps have at least these keys, null means that the key is absent, and lists
	// have these elements, by name where all of them have one, else exactly. The object is allowed. Pod templates are as the
	// pods that they create.
	Object map[string]any `json:"object,omitempty"`
}

// fieldsOf returns the names of the fields of a struct in JSON, for messages.
func fieldsOf(value any) string {
	var names []string
	for field := range reflect.TypeOf(value).Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// exampleUser creates the objects of requests that name no user.
const exampleUser = "anna"

// exampleTime is the time of a request that names none.
var exampleTime = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// validate checks a case and sets its defaults. The error names the field.
func (c *Case) validate() error {
	c.now = exampleTime
	if c.Now != "" {
		var err error
		if c.now, err = time.Parse(time.RFC3339, c.Now); err != nil {
			return fmt.Errorf("now: %q is not a time such as 2026-01-05T12:00:00+01:00", c.Now)
		}
	}
	if c.User == "" {
		c.User = exampleUser
	}
	e := &c.Expect
	switch {
	case c.Name == "":
		return errors.New("name: it is required")
	case c.Object == nil:
		return errors.New("object: it is required")
	case !e.Allowed && len(e.Denied) == 0 && e.Warnings == nil && e.Object == nil:
		return errors.New("expect: one of allowed, denied, warnings and object is required")
	case len(e.Denied) > 0 && (e.Allowed || e.Object != nil):
		return errors.New("expect: a denied object is not allowed, and has no resulting object")
	case slices.Contains(e.Denied, ""):
		return errors.New("expect.denied: a text is empty")
	}
	return nil
}

// Failure is how a decision differs from what a case expects.
type Failure struct {
	// Message says what differs.
	Message string
	// Diff shows the difference line by line; empty if the message has it.
	Diff string
}

// compare returns how a decision differs from the expectation.
func (e *Expectation) compare(d *Decision) []Failure {
	var failures []Failure
	fail := func(message, diff string) { failures = append(failures, Failure{message, diff}) }
	denials, warnings := d.Denials(), d.Warnings()
	if len(e.Denied) == 0 && len(denials) > 0 {
		fail("the object is denied, but should be allowed", lines("+", denials))
	}
	if len(e.Denied) > 0 {
		missing, more := match(e.Denied, denials)
		if len(missing)+len(more) > 0 {
			fail("the denials differ", lines("-", missing)+lines("+", more))
		}
	}
	if e.Warnings != nil {
		missing, more := match(*e.Warnings, warnings)
		if len(missing)+len(more) > 0 {
			fail("the warnings differ", lines("-", missing)+lines("+", more))
		}
	}
	if e.Object != nil && len(denials) == 0 {
		if diff := diffParts(e.Object, d.Effective); diff != "" {
			fail("the resulting object differs", diff)
		}
	}
	return failures
}

// match returns the expected texts that no message contains, and the messages that contain none of them.
func match(expected, messages []string) (missing, more []string) {
	for _, text := range expected {
		if !slices.ContainsFunc(messages, func(m string) bool { return strings.Contains(m, text) }) {
			missing = append(missing, text)
		}
	}
	for _, message := range messages {
		if !slices.ContainsFunc(expected, func(text string) bool { return strings.Contains(message, text) }) {
			more = append(more, message)
		}
	}
	return missing, more
}

// lines returns texts as lines of a diff.
func lines(sign string, texts []string) string {
	var all strings.Builder
	for _, text := range texts {
		fmt.Fprintf(&all, "%s %s\n", sign, text)
	}
	return all.String()
}

func messages(findings []merge.Finding, format func(merge.Finding) string) []string {
	texts := make([]string, len(findings))
	for i, finding := range findings {
		texts[i] = format(finding)
	}
	return texts
}
