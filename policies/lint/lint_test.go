// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/policies/check"
	"sluice.dev/policies/workbench"
)

func TestMain(m *testing.M) {
	check.RunIfChild()
	m.Run()
}

func load(t *testing.T, files map[string]string) *workbench.Folder {
	t.Helper()
	folder := fstest.MapFS{}
	for name, text := range files {
		folder[name] = &fstest.MapFile{Data: []byte(text)}
	}
	loaded, err := workbench.Load(folder)
	if loaded == nil {
		t.Fatal(err)
	}
	return loaded
}

// lint returns the findings as text, without those of the codes that the files cannot avoid.
func lint(t *testing.T, files map[string]string, without ...string) []string {
	t.Helper()
	findings, err := Run(t.Context(), load(t, files), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, f := range findings {
		if !slices.Contains(without, f.Code) {
			texts = append(texts, f.String()+": "+f.Code+": "+f.Message)
		}
	}
	return texts
}

const header = "apiVersion: sluice.dev/v1alpha1\nkind: Policy\nmetadata: {name: p}\n"

// Each finding, on the line of its cause, and that a correct policy has none of it.
func TestFindingsOfRego(t *testing.T) {
	for name, tc := range map[string]struct {
		spec, rego string // the Rego begins at line 3 of the file
		want       string // the beginning of the only finding that is no style; empty if there is none
	}{
		"correct":                  {"", "deny contains {\"msg\": \"x\", \"fix\": \"y\"} if input.workload.devices > 1\n", ""},
		"two values":               {"", "deny contains \"x\" if {\n\tinput.workload.type == \"train\"\n\tinput.workload.type == \"inference\"\n}\n", `p.rego:5:2: SL104: input.workload.type == "inference" is never true after input.workload.type == "train" (line 4)`},
		"two values of an element": {"", "deny contains \"x\" if {\n\tsome c in input.object.spec.containers\n\tc.name == \"a\"\n\tc.name == \"b\"\n}\n", "p.rego:6:2: SL104"},
		"two elements":             {"", "deny contains \"x\" if {\n\tinput.object.spec.containers[_].name == \"a\"\n\tinput.object.spec.containers[_].name == \"b\"\n}\n", ""},
		"an empty range":           {"", "deny contains \"x\" if {\n\tinput.workload.devices > 4\n\tinput.workload.devices <= 4\n}\n", "p.rego:5:2: SL104"},
		"a range":                  {"", "deny contains \"x\" if {\n\tinput.workload.devices >= 4\n\tinput.workload.devices <= 4\n}\n", ""},
		"a value out of range":     {"", "deny contains \"x\" if {\n\td := input.workload.devices\n\td == 1\n\t2 < d\n}\n", "p.rego:6:2: SL104"},
		"no value of a set":        {"", "deny contains \"x\" if {\n\tinput.workload.type in {\"train\", \"inference\"}\n\tinput.workload.type == \"interactive\"\n}\n", "p.rego:5:2: SL104"},
		"a value of a set":         {"", "deny contains \"x\" if {\n\tinput.workload.type in {\"train\", \"inference\"}\n\tinput.workload.type == \"train\"\n}\n", ""},
		"not equal to itself":      {"", "deny contains \"x\" if {\n\tinput.workload.type == \"train\"\n\tinput.workload.type != \"train\"\n}\n", "p.rego:5:2: SL104"},
		"under not":                {"", "deny contains \"x\" if {\n\tinput.workload.type == \"train\"\n\tnot input.workload.type == \"inference\"\n}\n", ""},
		"in two rules":             {"", "deny contains \"x\" if input.workload.type == \"train\"\n\ndeny contains \"x\" if input.workload.type == \"inference\"\n", ""},
		"constants":                {"", "deny contains \"x\" if {\n\tinput.workload.devices > 1\n\tlimit := 4\n\tlimit > 8\n}\n", "p.rego:6:2: SL104"},
		"false":                    {"", "deny contains \"x\" if {\n\tinput.workload.devices > 1\n\tfalse\n}\n", "p.rego:5:2: SL104: false is never true"},
		"a number and a string":    {"", "deny contains \"x\" if input.workload.devices > \"1\"\n", `p.rego:3:22: SL105: input.workload.devices > "1" compares a number (input.workload.devices) with a string ("1"), which is always false`},
		"a string and a number":    {"", "deny contains \"x\" if {\n\tsome pool in input.nodePools\n\tpool.name > 3\n}\n", `p.rego:5:2: SL105: pool.name > 3 compares a string (pool.name) with a number (3), which is always true`},
		"two numbers":              {"", "deny contains \"x\" if {\n\tsome pool in input.nodePools\n\tpool.limit > input.workload.devices\n}\n", ""},
		"a quantity":               {"", "deny contains \"x\" if {\n\tsome c in input.object.spec.containers\n\tc.resources.limits[\"nvidia.com/gpu\"] > 1\n}\n", `p.rego:5:2: SL106: c.resources.limits["nvidia.com/gpu"] is a quantity`},
		"a parsed quantity":        {"", "deny contains \"x\" if {\n\tsome c in input.object.spec.containers\n\tunits.parse(c.resources.limits[\"nvidia.com/gpu\"]) > 1\n}\n", ""},
		"a kind":                   {"", "deny contains \"x\" if {\n\tinput.object.kind == \"Deployment\"\n\tinput.workload.devices > 1\n}\n", `p.rego:4:2: SL107: input.object.kind == "Deployment" is never true: the policy is evaluated for kind Pod (spec.match.kinds) only`},
		"a matched kind":           {"  match: {kinds: [Pod, Job.batch]}\n", "deny contains \"x\" if input.object.kind == \"Job\"\n", ""},
		"an operation":             {"", "deny contains \"x\" if input.review.operation in {\"UPDATE\", \"DELETE\"}\n", "p.rego:3:22: SL107"},
		"the old object":           {"", "deny contains \"x\" if input.oldObject.metadata.labels.a != input.object.metadata.labels.a\n", "p.rego:3:22: SL108"},
		"a warning in DryRun":      {"  enforcement: DryRun\n", "warn contains \"x\" if input.workload.devices > 1\n", "p.rego:3:1: SL109"},
		"an unset parameter":       {"", "deny contains \"x\" if input.workload.devices > input.parameters.max\n", "p.rego:3:47: SL110: input.parameters.max is not in spec.parameters"},
		"a parameter with default": {"", "deny contains \"x\" if input.workload.devices > object.get(input.parameters, \"max\", 1)\n", ""},
		"a parameter under not":    {"", "deny contains \"x\" if {\n\tnot input.parameters.off\n\tinput.workload.devices > 1\n}\n", ""},
		"a set parameter":          {"  parameters: {max: 1}\n", "deny contains \"x\" if input.workload.devices > input.parameters.max\n", ""},
		"an unread parameter":      {"  parameters: {max: 1}\n", "deny contains \"x\" if input.workload.devices > 1\n", "p.yaml:5:16: SL111"},
		"too few arguments":        {"", "deny contains sprintf(\"%s has %d%%\", [input.project.name]) if input.workload.devices > 1\n", "p.rego:3:15: SL112: sprintf has 2 verbs and 1 arguments"},
		"too many arguments":       {"", "deny contains msg if {\n\tinput.workload.devices > 1\n\tmsg := sprintf(\"x\", [input.project.name])\n}\n", "p.rego:5:9: SL112"},
		"arguments by index":       {"", "deny contains sprintf(\"%[1]s %[1]s\", [input.project.name]) if input.workload.devices > 1\n", ""},
		"the hour in UTC":          {"", "deny contains \"x\" if {\n\tnow := time.parse_rfc3339_ns(input.now)\n\t[hour, _, _] := time.clock(now)\n\thour > 20\n}\n", "p.rego:5:18: SL113: time.clock(now) is in UTC"},
		"the hour in a zone":       {"", "deny contains \"x\" if {\n\tnow := [time.parse_rfc3339_ns(input.now), input.department.timeZone]\n\t[hour, _, _] := time.clock(now)\n\thour > 20\n}\n", ""},
		"every object":             {"", "deny contains \"x\"\n", "p.rego:3:1: SL114"},
		"one project":              {"", "deny contains \"x\" if {\n\tinput.project.name == \"thesis\"\n\tinput.workload.devices > 1\n}\n", "p.rego:4:2: SL115"},
		"one project, matched":     {"  match: {projects: [thesis]}\n", "deny contains \"x\" if {\n\tinput.project.name == \"thesis\"\n\tinput.workload.devices > 1\n}\n", ""},
		"a project by parameter":   {"  parameters: {projects: [a]}\n", "deny contains \"x\" if input.project.name in input.parameters.projects\n", "p.yaml:5:16: SL115"},
		"a library":                {"", "import data.sluice.lib.request\n\ndeny contains \"x\" if request.includes_gpu\n", ""},
		"slow":                     {"", "deny contains \"x\" if count([x | some a in numbers.range(1, 3000); some b in numbers.range(1, 3000); x := (a * b) + input.workload.devices]) < 3\n", "p.rego:1:1: SL117"},
		"a misspelled rule":        {"", "denied contains \"x\" if input.workload.devices > 1\n", "p.rego:1:1: SL100; p.rego:3:1: SL102"},
		"a field of no pod":        {"", "deny contains \"x\" if input.object.spec.nodename == \"a\"\n", "p.rego:3:22: SL101"},
		"refused":                  {"", "deny contains \"x\" if input.workload.gpu > 1\n", "p.rego:3:22: SL002: input.workload.gpu does not exist"},
		"a library, not imported":  {"", "deny contains \"x\" if request.includes_gpu\n", "p.rego:3:22: SL002: var request is unsafe; did you mean the library? Add import data.sluice.lib.request"},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"p.yaml": header + "spec:\n" + tc.spec, "p.rego": "package p\n\n" + tc.rego}
			if tc.spec == "" {
				files["p.yaml"] = header
			}
			got := lint(t, files, packageName, denyWithoutFix, noSchema, noTests, unformattedRego)
			wants := strings.Split(tc.want, "; ")
			if strings.HasPrefix(tc.want, "p.rego:3:22: SL002: var") {
				wants = []string{tc.want}
			}
			if tc.want == "" {
				wants = nil
			}
			if len(got) != len(wants) {
				t.Fatalf("findings\n%s\nwant %q", strings.Join(got, "\n"), tc.want)
			}
			for i, want := range wants {
				if !strings.HasPrefix(got[i], want) {
					t.Errorf("finding %s\nwant    %s", got[i], want)
				}
			}
		})
	}
}

func TestFindingsOfFiles(t *testing.T) {
	const policy = header + "spec:\n  rego: |\n    package p\n\n    deny contains {\"msg\": \"x\", \"fix\": \"y\"} if input.workload.devices > 1\n"
	const pod = "object: {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: main, image: a}]}}\n"
	const project = "apiVersion: sluice.dev/v1alpha1\nkind: Project\nmetadata: {name: thesis}\nspec: {department: d, nodePools: []}\n"
	for name, tc := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"no tests":           {map[string]string{"p.yaml": policy}, []string{"p.yaml:3:12: SL204: the policy has no unit tests and no cases"}},
		"a case":             {map[string]string{"p.yaml": policy, "p.case.yaml": "name: a\n" + pod + "expect: {allowed: true}\n"}, nil},
		"a unit test":        {map[string]string{"p.yaml": policy, "other_test.rego": "package p_test\n\nimport data.p\n\ntest_x if count(p.deny) == 0 with input as {}\n"}, nil},
		"an unknown key":     {map[string]string{"p.yaml": policy, "p.case.yaml": "name: a\n" + pod + "expect: {allowed: true}\n---\nname: b\n" + pod + "expect:\n  allowedd: true\n"}, []string{`p.case.yaml:8:3: SL001: a case: unknown field "allowedd"`}},
		"an unknown project": {map[string]string{"p.yaml": policy, "p.case.yaml": "name: a\nproject: x\nparameters: {q: {}}\n" + pod + "expect: {allowed: true}\n"}, []string{`p.case.yaml:2:1: SL005: case "a": project: the folder has no Project "x"`, `p.case.yaml:3:14: SL005: case "a": parameters: there is no policy "q"`}},
		"a broken unit test": {map[string]string{"p.yaml": policy, "p_test.rego": "package p_test\n\ntest_x if {\n"}, []string{"p_test.rego:4:1: SL003"}},
		"YAML":               {map[string]string{"p.yaml": policy, "p_test.rego": "package p_test\n", "a.yaml": "a: [\n"}, []string{"a.yaml:1:1: SL001"}},
		"an unknown field":   {map[string]string{"p.yaml": policy + "  matches: {}\n"}, []string{`p.yaml:9:3: SL001: a Policy: unknown field "matches"`}},
		"a project":          {map[string]string{"p.yaml": policy + "  match: {projects: [thesi]}\n", "p_test.rego": "package p_test\n", "t.yaml": project}, []string{"p.yaml:9:22: SL116: spec.match.projects: the folder has no thesi, only thesis"}},
		"a kind":             {map[string]string{"p.yaml": policy + "  match:\n    kinds: [Pod, Deployment.apps]\n", "p_test.rego": "package p_test\n"}, []string{"p.yaml:10:18: SL002: spec.match.kinds[1]"}},
		"a package":          {map[string]string{"p.yaml": strings.Replace(policy, "package p", "package q", 1), "p_test.rego": "package p_test\n"}, []string{"p.yaml:6:5: SL201: the package is q: name it p"}},
		"no fix":             {map[string]string{"p.yaml": strings.Replace(policy, `{"msg": "x", "fix": "y"}`, `"x"`, 1), "p_test.rego": "package p_test\n"}, []string{"p.yaml:8:5: SL202"}},
		"the format":         {map[string]string{"p.yaml": strings.Replace(policy, "> 1", ">1", 1), "p_test.rego": "package p_test\n\n\n\n"}, []string{"p.yaml:8:5: SL205", "p_test.rego:2:1: SL205"}},
		"no schema":          {map[string]string{"p.yaml": strings.Replace(policy, "> 1", "> input.parameters.max", 1) + "  parameters: {max: 1}\n", "p_test.rego": "package p_test\n"}, []string{"p.yaml:9:3: SL203"}},
		"an unread property": {map[string]string{"p.yaml": policy + "  parametersSchema:\n    type: object\n    properties:\n      max: {type: integer}\n", "p_test.rego": "package p_test\n"}, []string{"p.yaml:12:7: SL111"}},
		"no department":      {map[string]string{"p.yaml": policy + "  match: {projects: [thesis]}\n", "p_test.rego": "package p_test\n", "t.yaml": project}, []string{`p.yaml:9:11: SL001: project thesis: spec.department: the folder has no Department "d"`}},
		"an unused file":     {map[string]string{"p.yaml": policy, "p.rego": "package p\n", "p_test.rego": "package p_test\n", "p-test.rego": "package p_test\n"}, []string{"p-test.rego:1:1: SL119: nothing evaluates the file", "p.rego:1:1: SL119"}},
		"an ignored file":    {map[string]string{"p.yaml": policy, "p_test.rego": "package p_test\n", "x.rego": "# sluice:ignore SL119 for conftest\npackage x\n"}, nil},
		"a library":          {map[string]string{"p.yaml": strings.Replace(policy, "package p\n", "package p\n\n    import data.lib.q\n", 1) + "    deny contains {\"msg\": \"x\", \"fix\": \"y\"} if q.bad(input.object.metadata.name)\n  parameters: {name: bad}\n  parametersSchema:\n    type: object\n    properties:\n      name: {type: string}\n", "p_test.rego": "package p_test\n", "q.yaml": "apiVersion: sluice.dev/v1alpha1\nkind: Policy\nmetadata: {name: q}\nspec:\n  type: Library\n  enforcement: Deny\n  rego: |\n    package lib.q\n\n    bad(name) if name == input.parameters.name\n", "q_test.rego": "package q_test\n"}, nil},
		"replaced in DryRun": {map[string]string{"p.yaml": policy + "  enforcement: DryRun\n  replaces: core.type\n", "p_test.rego": "package p_test\n"}, []string{"p.yaml:10:3: SL109"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := lint(t, tc.files)
			if len(got) != len(tc.want) {
				t.Fatalf("findings\n%s\nwant %q", strings.Join(got, "\n"), tc.want)
			}
			for i, want := range tc.want {
				if !strings.HasPrefix(got[i], want) {
					t.Errorf("finding %s\nwant    %s", got[i], want)
				}
			}
		})
	}
}

func TestIgnoreComments(t *testing.T) {
	const rule = "deny contains \"x\" if {\n\tinput.oldObject\n}\n"
	for name, tc := range map[string]struct {
		rego string
		want []string
	}{
		"above":            {"# sluice:ignore SL202 the message says it\n" + rule, []string{"5 SL108"}},
		"on the line":      {strings.Replace(rule, "oldObject", "oldObject # sluice:ignore SL108 kept for later", 1), []string{"3 SL202"}},
		"two codes":        {"# sluice:ignore SL202,SL108 a reason\ndeny contains \"x\" if input.oldObject\n", nil},
		"a comment beyond": {"# sluice:ignore SL202 a reason\n# another comment\n" + rule, []string{"6 SL108"}},
		"no reason":        {"# sluice:ignore SL202\n" + rule, []string{"3 SL004", "4 SL202", "5 SL108"}},
		"no code":          {"# sluice:ignore\n" + rule, []string{"3 SL004", "4 SL202", "5 SL108"}},
		"an unknown code":  {"# sluice:ignore SL999 a reason\n" + rule, []string{"3 SL004", "4 SL202", "5 SL108"}},
		"an error":         {"# sluice:ignore SL002 a reason\n" + rule, []string{"3 SL004", "4 SL202", "5 SL108"}},
		"nothing":          {"# sluice:ignore SL104 a reason\n" + rule, []string{"3 SL118", "4 SL202", "5 SL108"}},
		"within a text":    {strings.Replace(rule, `"x"`, `"sluice:ignore SL202 a"`, 1), []string{"3 SL202", "4 SL108"}},
	} {
		t.Run(name, func(t *testing.T) {
			findings, err := Run(t.Context(), load(t, map[string]string{
				"p.yaml": header, "p.rego": "package p\n\n" + tc.rego, "p_test.rego": "package p_test\n",
			}), Options{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range findings {
				got = append(got, strconv.Itoa(f.Line)+" "+f.Code)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("findings (-want +got)\n%s", diff)
			}
		})
	}
}

// The codes are unique, sorted, and each of a check is tested above.
func TestCodes(t *testing.T) {
	severities := map[byte]Severity{'0': Error, '1': Warning, '2': Style}
	var ids []string
	for _, code := range Codes() {
		ids = append(ids, code.ID)
		if !isCode.MatchString(code.ID) || code.Severity != severities[code.ID[2]] || code.Description == "" {
			t.Errorf("code %+v", code)
		}
	}
	if !slices.IsSorted(ids) || len(slices.Compact(slices.Clone(ids))) != len(ids) {
		t.Errorf("codes %v", ids)
	}
}

// Formatted Rego stays in its place in the YAML, and all else in the file is the same.
func TestFormat(t *testing.T) {
	const before = "# mine\n" + header + "spec:\n  rego: |\n    package p\n    deny contains \"x\" if {\n      input.workload.devices>1\n\n    }\n  enforcement: Warn # later\n" +
		"---\n" + "apiVersion: sluice.dev/v1alpha1\nkind: Policy\nmetadata: {name: q}\nspec:\n    rego: |-\n        package q\n        deny contains \"x\" if input.workload.devices>2\n"
	folder := load(t, map[string]string{
		"p.yaml": before, "p_test.rego": "package p_test\ntest_x if 1==1\n",
		"r.yaml": strings.Replace(header, "name: p", "name: r", 1) + "spec: {rego: \"package r\\ndeny contains 1 if input.a>1\"}\n",
	})
	changed, err := Format(folder)
	if err == nil || !strings.Contains(err.Error(), "r.yaml: policy r: the Rego is not written as a block") {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff([]string{"p.yaml", "p_test.rego"}, changed); diff != "" {
		t.Errorf("changed (-want +got)\n%s", diff)
	}
	want := "# mine\n" + header + "spec:\n  rego: |\n    package p\n\n    deny contains \"x\" if {\n    \tinput.workload.devices > 1\n    }\n  enforcement: Warn # later\n" +
		"---\n" + "apiVersion: sluice.dev/v1alpha1\nkind: Policy\nmetadata: {name: q}\nspec:\n    rego: |-\n        package q\n\n        deny contains \"x\" if input.workload.devices > 2\n"
	if diff := cmp.Diff(want, folder.Text("p.yaml")); diff != "" {
		t.Errorf("p.yaml (-want +got)\n%s", diff)
	}
	if again, _ := Format(folder); len(again) > 0 {
		t.Errorf("formatted again: %v", again)
	}
}

// The files of a new policy pass its unit tests, its cases and the strictest lint.
func TestNewPoliciesAreGood(t *testing.T) {
	for _, kind := range workbench.ScaffoldKinds {
		t.Run(kind, func(t *testing.T) {
			files, err := workbench.Scaffold("my-policy", kind)
			if err != nil {
				t.Fatal(err)
			}
			for _, finding := range lint(t, files) {
				t.Error(finding)
			}
			folder := load(t, files)
			units, _, err := folder.RunUnitTests(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			cases, err := folder.RunCases(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, outcome := range append(units, cases...) {
				if !outcome.Passed() {
					t.Errorf("%+v", outcome)
				}
			}
			if len(units) == 0 || len(cases) == 0 {
				t.Errorf("%d unit tests and %d cases", len(units), len(cases))
			}
		})
	}
}

func TestCountVerbs(t *testing.T) {
	for text, want := range map[string]int{"": 0, "%": 0, "%%": 0, "%s %d": 2, "%-5.2f%%": 1, "100%": 0, "%v%": 1} {
		if got, ok := countVerbs(text); got != want || !ok {
			t.Errorf("%q: %d, %v; want %d", text, got, ok, want)
		}
	}
	for _, text := range []string{"%[1]s", "%*d"} {
		if _, ok := countVerbs(text); ok {
			t.Errorf("%q was counted", text)
		}
	}
}

// Any text has ignore comments with a line of the text, and codes or a fault.
func FuzzParseIgnores(f *testing.F) {
	f.Add("# sluice:ignore SL104 a reason\nx\n")
	f.Add("a # sluice:ignore SL104,SL105 b\r\n#sluice:ignore\n# sluice:ignore SL104")
	f.Fuzz(func(t *testing.T, text string) {
		lines := strings.Count(text, "\n") + 1
		for _, c := range parseIgnores("a", text) {
			if c.line < c.place.Line || c.line > lines || c.place.Column < 1 || (len(c.codes) == 0) == (c.fault == "") {
				t.Errorf("%+v of %q", c, text)
			}
		}
	})
}

// Any Rego has findings or none, within its lines.
func FuzzRun(f *testing.F) {
	f.Add("package p\ndeny contains \"x\" if input.object.kind == \"Job\"\n")
	f.Add("package p\ndeny contains sprintf(\"%s\", [1, 2]) if { 1 > 2; x := x; some y in z }\n")
	f.Add("# sluice:ignore\npackage p")
	f.Fuzz(func(t *testing.T, rego string) {
		folder := load(t, map[string]string{"p.yaml": header, "p.rego": rego})
		findings, err := Run(t.Context(), folder, Options{})
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Count(rego, "\n") + 2
		for _, finding := range findings {
			if finding.File == "p.rego" && (finding.Line > lines || finding.Line < 0) {
				t.Errorf("%+v of %q", finding, rego)
			}
		}
	})
}
