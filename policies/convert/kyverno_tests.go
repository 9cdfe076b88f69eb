// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"path"
	"strings"
)

// addTests adds the results of Kyverno's test files to the drafts of their rules, as far as they are about pods and Jobs.
func (k *kyverno) addTests(documents []sourceObject) {
	objects := make(map[string][]*sourceObject) // by folder and name
	for i := range documents {
		if d := &documents[i]; isExample(d.content) {
			key := path.Dir(d.file) + "/" + d.name()
			objects[key] = append(objects[key], d)
		}
	}
	for i := range documents {
		d := &documents[i]
		if base := path.Base(d.file); d.kind() != "Test" && !strings.HasPrefix(base, "kyverno-test") || d.content["results"] == nil {
			continue
		}
		k.addTest(d, objects)
	}
}

func (k *kyverno) addTest(d *sourceObject, objects map[string][]*sourceObject) {
	e := k.entry(d.file, "Test/"+path.Base(d.file))
	type key struct {
		draft *draft
		name  string
	}
	expected, order := make(map[key]bool), []key{}
	for i, result := range list(d.content["results"]) {
		rule := text(at(result, "policy")) + "/" + text(at(result, "rule"))
		draft := k.byRule[rule]
		outcome := text(at(result, "result"))
		if draft == nil || draft.changed != nil || outcome == "" {
			e.note("results[%d]: no case, since the rule %s was not converted to a denial", i, rule)
			continue
		}
		for _, name := range append(texts(at(result, "resources")), texts(at(result, "resource"))...) {
			name = name[strings.LastIndex(name, "/")+1:]
			if len(objects[path.Dir(d.file)+"/"+name]) != 1 {
				e.note("results[%d]: no case, since %s is not one pod or Job", i, name)
				continue
			}
			at := key{draft, name}
			if _, known := expected[at]; !known {
				order = append(order, at)
			}
			expected[at] = expected[at] || outcome == "fail"
		}
	}
	for _, at := range order {
		one := objects[path.Dir(d.file)+"/"+at.name][0]
		at.draft.tests = append(at.draft.tests, sourceTest{
			name: fmt.Sprintf("%s of %s", at.name, path.Base(d.file)), object: one.content, refused: expected[at],
		})
		e.Policies = appendOnce(e.Policies, at.draft.policy.Name)
	}
	if len(e.Policies) == 0 {
		e.Status = StatusIgnored
	}
}
