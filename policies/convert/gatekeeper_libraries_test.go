// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/convert"
)

// sharing returns a template of a kind with a constraint of the same name, whose rule imports libraries.
func sharing(kind, imports, condition string, libraries ...string) convert.File {
	var libs strings.Builder
	libs.WriteString("      libs:\n")
	for _, text := range libraries {
		libs.WriteString("        - |\n          " + strings.ReplaceAll(text, "\n", "\n          ") + "\n")
	}
	rule := fmt.Sprintf("package %s\n%s\nviolation[{\"msg\": \"%s\"}] { %s }", kind, imports, kind, condition)
	text := template(rule, libs.String(), pods)
	text = strings.NewReplacer("{kind: T}", "{kind: "+kind+"}", "kind: T\n", "kind: "+kind+"\n", "{name: t}", "{name: "+kind+"}", "{name: c}", "{name: "+kind+"}").Replace(text)
	return convert.File{Name: kind + ".yaml", Text: []byte(text)}
}

// Templates share libraries of the same text. Others of the same package, or within it, get a package of their own, and what
// cannot be a library is a part of the policy. All policies report what the template does: the conversion compares them.
func TestGatekeeperLibraries(t *testing.T) {
	const (
		host    = "package lib.host\nuses_pid { input.review.object.spec.hostPID }"
		network = "package lib.host\nuses_pid { input.review.object.spec.hostNetwork }"
		nested  = "package lib.host.pid\nused { input.review.object.spec.hostPID }"
		root    = "package lib\nused { input.review.object.spec.hostPID }"
		through = "package lib.through\nimport data.lib.host\nuses { host.uses_pid }"
		unused  = "package lib.unused\nimport data.lib.host\nused { input.review.object.spec.hostPID }"
	)
	for name, tc := range map[string]struct {
		files []convert.File
		// libraries are the packages by the names of the libraries; imports are the lines of the policies with data.lib.
		libraries map[string]string
		imports   map[string]string
	}{
		"the same text": {
			[]convert.File{
				sharing("a", "import data.lib.host", "host.uses_pid", host),
				sharing("b", "import data.lib.host.uses_pid", "uses_pid", host),
				sharing("c", "", "data.lib.host.uses_pid", host),
			},
			map[string]string{"host": "lib.host"},
			map[string]string{"a": "import data.lib.host", "b": "import data.lib.host.uses_pid", "c": `violation contains {"msg": "c"} if data.lib.host.uses_pid`},
		},
		"another text of the same package": {
			[]convert.File{
				sharing("a", "import data.lib.host", "host.uses_pid", host),
				sharing("b", "import data.lib.host", "host.uses_pid", network),
				sharing("c", "import data.lib.host as h", "h.uses_pid", network),
				sharing("d", "import data.lib.host.uses_pid", "uses_pid", network),
			},
			map[string]string{"host": "lib.host", "host-2": "lib.host_2"},
			map[string]string{
				"a": "import data.lib.host", "b": "import data.lib.host_2 as host", "c": "import data.lib.host_2 as h",
				"d": "import data.lib.host_2.uses_pid",
			},
		},
		"a package within another": {
			[]convert.File{sharing("a", "import data.lib.host\nimport data.lib.host.pid", "host.uses_pid; pid.used", host, nested)},
			map[string]string{"host": "lib.host", "host-pid": "lib.host_pid"},
			map[string]string{"a": "import data.lib.host import data.lib.host_pid as pid"},
		},
		"the package lib": {
			[]convert.File{sharing("a", "import data.lib", "lib.used", root)},
			map[string]string{"lib": "lib.lib"},
			map[string]string{"a": "import data.lib.lib"},
		},
		"through another library": {
			[]convert.File{
				sharing("a", "import data.lib.through", "through.uses", host, through),
				sharing("b", "import data.lib.through", "through.uses", network, through),
			},
			map[string]string{"host": "lib.host", "through": "lib.through", "host-2": "lib.host_2", "through-2": "lib.through_2"},
			map[string]string{"a": "import data.lib.through", "b": "import data.lib.through_2 as through"},
		},
		"no library of its own": {
			[]convert.File{sharing("a", "import data.lib.unused", "unused.used", host, unused)},
			map[string]string{},
			map[string]string{"a": ""},
		},
		"the name of a policy": {
			[]convert.File{sharing("host", "import data.lib.host as h", "h.uses_pid", host)},
			map[string]string{"host-2": "lib.host"},
			map[string]string{"host": "import data.lib.host as h"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := convert.Gatekeeper(t.Context(), tc.files, inProcess)
			if err != nil {
				t.Fatal(err)
			}
			if result.Incomplete() > 0 {
				t.Errorf("the entries are %+v", result.Entries)
			}
			libraries, imports := make(map[string]string), make(map[string]string)
			for _, p := range result.Policies {
				if p.Policy.Spec.Type == v1alpha1.PolicyTypeLibrary {
					first, _, _ := strings.Cut(p.Policy.Spec.Rego, "\n")
					libraries[p.Policy.Name] = strings.TrimPrefix(first, "package ")
					continue
				}
				var lines []string
				for line := range strings.Lines(p.Policy.Spec.Rego) {
					if line = strings.TrimSpace(line); strings.Contains(line, "data.lib") {
						lines = append(lines, line)
					}
				}
				imports[p.Policy.Name] = strings.Join(lines, " ")
			}
			if diff := cmp.Diff(tc.libraries, libraries); diff != "" {
				t.Errorf("the libraries differ (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(tc.imports, imports); diff != "" {
				t.Errorf("the imports differ (-want +got)\n%s", diff)
			}
			var all []v1alpha1.Policy
			for i := range result.Policies {
				all = append(all, result.Policies[i].Policy)
			}
			for i := range all {
				for _, problem := range checkOf(&all[i], all) {
					t.Error(problem)
				}
			}
		})
	}
}
