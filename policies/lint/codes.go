// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"cmp"
	"slices"

	"sluice.dev/policies/workbench"
)

// Severity is how bad a finding is.
type Severity string

// The severities.
const (
	// Error: the policy, a case or a unit test cannot be used.
	Error Severity = "error"
	// Warning: the policy probably does not do what its author means.
	Warning Severity = "warning"
	// Style: the policy works, and could be easier to read or to use.
	Style Severity = "style"
)

// Code is a kind of finding. Its ID never changes its meaning.
type Code struct {
	ID       string   `json:"id"`
	Severity Severity `json:"severity"`
	// Description says what the findings are about.
	Description string `json:"description"`
}

// The codes of errors.
const (
	unreadable     = "SL001"
	refused        = "SL002"
	brokenUnitTest = "SL003"
	invalidIgnore  = "SL004"
	unknownInCase  = "SL005"
)

// The codes of warnings.
const (
	otherWarning       = "SL100"
	unknownObjectField = "SL101"
	misspelledRule     = "SL102"
	conflictingValue   = "SL103"
	contradiction      = "SL104"
	otherType          = "SL105"
	comparedQuantity   = "SL106"
	excludedKind       = "SL107"
	noOldObject        = "SL108"
	noEffect           = "SL109"
	missingParameter   = "SL110"
	unusedParameter    = "SL111"
	wrongFormat        = "SL112"
	timeInUTC          = "SL113"
	deniesAll          = "SL114"
	broadMatch         = "SL115"
	unknownTenant      = "SL116"
	slow               = "SL117"
	unusedIgnore       = "SL118"
	unusedFile         = "SL119"
)

// The codes of style.
const (
	packageName     = "SL201"
	denyWithoutFix  = "SL202"
	noSchema        = "SL203"
	noTests         = "SL204"
	unformattedRego = "SL205"
)

var codes = []Code{
	{unreadable, Error, "a file, or an object in it, cannot be read: YAML, an unknown field, a missing value"},
	{refused, Error, "the webhook would refuse the policy"},
	{brokenUnitTest, Error, "a file of unit tests has a syntax error"},
	{invalidIgnore, Error, "an ignore comment has no reason, or names a code that does not exist or cannot be ignored"},
	{unknownInCase, Error, "a case names a policy or a project that does not exist"},
	{otherWarning, Warning, "another warning of the check that the webhook makes"},
	{unknownObjectField, Warning, "a field that the matched kinds of Kubernetes do not have"},
	{misspelledRule, Warning, "a rule whose name is almost one that Sluice knows"},
	{conflictingValue, Warning, "another value than a policy in force sets, on an example object"},
	{contradiction, Warning, "conditions that are never true together"},
	{otherType, Warning, "a comparison of different types, whose result is constant"},
	{comparedQuantity, Warning, "a quantity of Kubernetes, which is a string, compared with a number"},
	{excludedKind, Warning, "a condition on a kind or an operation for which the policy is never evaluated"},
	{noOldObject, Warning, "input.oldObject, which new objects do not have"},
	{noEffect, Warning, "a rule or field without effect under the policy's enforcement"},
	{missingParameter, Warning, "a parameter that is read, and neither set nor required"},
	{unusedParameter, Warning, "a parameter that no rule reads"},
	{wrongFormat, Warning, "sprintf with too few or too many arguments"},
	{timeInUTC, Warning, "a time of day, a weekday or a date in UTC instead of the department's zone"},
	{deniesAll, Warning, "a rule that refuses every object that the policy matches"},
	{broadMatch, Warning, "a policy for some projects or departments that matches all"},
	{unknownTenant, Warning, "a project or department in the match that the folder does not have, though it has others"},
	{slow, Warning, "an evaluation that takes longer than a policy may, on an example object"},
	{unusedIgnore, Warning, "an ignore comment that ignores nothing"},
	{unusedFile, Warning, "a file of Rego that belongs to no policy and is no unit test, so that nothing evaluates it"},
	{packageName, Style, "a package that is not named after the policy"},
	{denyWithoutFix, Style, "a denial that does not say what its author can do"},
	{noSchema, Style, "parameters without a schema, so that no check finds a misspelled one"},
	{noTests, Style, "a policy without unit tests and cases"},
	{unformattedRego, Style, "Rego in another format than that of opa fmt; --fix rewrites it"},
}

// Codes returns all codes, sorted by ID.
func Codes() []Code { return slices.Clone(codes) }

func lookUpCode(id string) (Code, bool) {
	at := slices.IndexFunc(codes, func(c Code) bool { return c.ID == id })
	if at < 0 {
		return Code{}, false
	}
	return codes[at], true
}

// Finding is one result.
type Finding struct {
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	// Policy is the policy's name; empty for files without one.
	Policy string `json:"policy,omitempty"`
	workbench.Place
	// Message says what is wrong and what to do.
	Message string `json:"message"`
}

// sortFindings sorts by place, and removes duplicates.
func sortFindings(findings []Finding) []Finding {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Code, b.Code), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(findings)
}
