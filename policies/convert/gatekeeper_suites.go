// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"path"
	"strconv"
)

// addSuites adds the cases of gator's suites to the drafts of their constraints.
func (g *gatekeeper) addSuites(documents []sourceObject) {
	byFile := make(map[string][]*sourceObject)
	for i := range documents {
		byFile[documents[i].file] = append(byFile[documents[i].file], &documents[i])
	}
	for i := range documents {
		if d := &documents[i]; d.group() == "test.gatekeeper.sh" && d.kind() == "Suite" {
			g.addSuite(d, byFile)
		}
	}
}

func (g *gatekeeper) addSuite(suite *sourceObject, byFile map[string][]*sourceObject) {
	e := g.entry(suite.file, suite.kind()+"/"+path.Base(suite.file))
	folder := path.Dir(suite.file)
	for i, rawTest := range list(suite.content["tests"]) {
		test := object(rawTest)
		where := fmt.Sprintf("tests[%d]", i)
		draft := g.draftOf(byFile[path.Join(folder, text(test["constraint"]))])
		if draft == nil {
			e.refuse(where, fmt.Sprintf("its constraint %q was not converted", text(test["constraint"])), "see the entry of the constraint")
			continue
		}
		for k, rawCase := range list(test["cases"]) {
			one := object(rawCase)
			part := fmt.Sprintf("%s.cases[%d]", where, k)
			found := byFile[path.Join(folder, text(one["object"]))]
			if len(found) != 1 || !isExample(found[0].content) {
				e.note("%s: the object %s is not one pod or Job, so it is no case", part, text(one["object"]))
				continue
			}
			refused, ok := expectsViolation(list(one["assertions"]))
			if !ok {
				e.note("%s: it asserts nothing about violations, so it is no case", part)
				continue
			}
			draft.tests = append(draft.tests, sourceTest{name: text(one["name"]), object: found[0].content, refused: refused})
		}
		e.Policies = appendOnce(e.Policies, draft.policy.Name)
	}
	if len(e.Policies) == 0 && len(e.Gaps) == 0 {
		e.Status = StatusIgnored
		e.note("it has no tests")
	}
}

// draftOf returns the draft of the only constraint in a file.
func (g *gatekeeper) draftOf(documents []*sourceObject) *draft {
	for _, d := range documents {
		for _, known := range g.byObject {
			if known.constraint.file == d.file && known.constraint.label() == d.label() {
				return known.draft
			}
		}
	}
	return nil
}

// isExample reports whether an object is one that policies are evaluated for.
func isExample(content map[string]any) bool {
	kind, version := text(content["kind"]), text(content["apiVersion"])
	return kind == "Pod" && version == "v1" || kind == "Job" && version == "batch/v1"
}

// expectsViolation returns whether the assertions of a case expect violations; false if they do not say.
func expectsViolation(assertions []any) (refused, ok bool) {
	for _, assertion := range assertions {
		switch violations := at(assertion, "violations").(type) {
		case nil:
			if text(at(assertion, "message")) != "" {
				return true, true
			}
		case bool:
			return violations, true
		case int64:
			return violations > 0, true
		case string:
			if count, err := strconv.Atoi(violations); err == nil {
				return count > 0, true
			}
			return violations == "yes", violations == "yes" || violations == "no"
		}
	}
	return false, false
}

func appendOnce(all []string, name string) []string {
	for _, known := range all {
		if known == name {
			return all
		}
	}
	return append(all, name)
}
