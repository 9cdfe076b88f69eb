// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// regoModule is a module in Rego v1 that is being written.
type regoModule struct {
	name string
	body *strings.Builder
	// functions are those of regoFunctions that the module uses.
	functions map[string]bool
	numbers   int
}

func newRegoModule(name string) *regoModule {
	return &regoModule{name: name, body: &strings.Builder{}, functions: make(map[string]bool)}
}

// comment adds comment lines.
func (m *regoModule) comment(text string) { m.body.WriteString(comment(text)) }

// rule adds a rule with the conditions that are not empty.
func (m *regoModule) rule(head string, conditions ...string) {
	conditions = slices.DeleteFunc(conditions, func(c string) bool { return c == "" })
	if len(conditions) == 0 {
		m.body.WriteString(head + "\n\n")
		return
	}
	fmt.Fprintf(m.body, "%s if {\n\t%s\n}\n\n", head, strings.Join(conditions, "\n\t"))
}

// newName returns a name for a rule or a function that the module has not yet.
func (m *regoModule) newName(prefix string) string {
	m.numbers++
	return fmt.Sprintf("%s_%d", prefix, m.numbers)
}

// use returns the name of a function of regoFunctions, which becomes a part of the module.
func (m *regoModule) use(name string) string {
	m.functions[name] = true
	return name
}

// text returns the module.
func (m *regoModule) text() string {
	var b strings.Builder
	b.WriteString("package " + m.name + "\n\n" + m.body.String())
	for _, name := range regoFunctionOrder {
		if m.functions[name] {
			b.WriteString(regoFunctions[name] + "\n")
		}
	}
	if formatted, err := formatRego(b.String(), ast.RegoV1, ast.RegoV1); err == nil {
		return formatted
	}
	return b.String()
}

// regoFunctionOrder is the order in which modules have the functions.
var regoFunctionOrder = []string{
	"unless_absent", "only_if", "only_if_present", "forbidden", "existing", "present",
	"all_of", "each_of", "scalar", "elements",
	"text_of", "amount", "seconds",
}

// regoFunctions are the functions of converted modules. The results of checks are "pass", "fail" and "skip".
var regoFunctions = map[string]string{
	"unless_absent": `# =(key): if there is the key, its value decides.
unless_absent(value, key, result) := result if {
	key in object.keys(value)
} else := "pass"
`,
	"only_if": `# (key): the rule is skipped unless there is the key with this value.
only_if(value, key, result) := "pass" if {
	key in object.keys(value)
	result == "pass"
} else := "skip"
`,
	"only_if_present": `# <(key): the rule is skipped if there is the key with another value.
only_if_present(value, key, result) := "skip" if {
	key in object.keys(value)
	result != "pass"
} else := "pass"
`,
	"forbidden": `# X(key): there is no such key.
forbidden(value, key) := "fail" if {
	key in object.keys(value)
} else := "pass"
`,
	"existing": `# ^(key): if there is the list, one of its elements has the values.
existing(value, key, results) := "fail" if {
	key in object.keys(value)
	not "pass" in results
} else := "pass"
`,
	"present": `# key: "*": there is a value.
present(value, key) := "pass" if {
	object.get(value, key, null) != null
} else := "fail"
`,
	"all_of": `# all_of: the result of the keys of an object.
all_of(results) := "skip" if {
	"skip" in results
} else := "fail" if {
	"fail" in results
} else := "pass"
`,
	"each_of": `# each_of: the result of the elements of a list, of which those that are skipped do not count.
each_of(results) := "fail" if {
	"fail" in results
} else := "skip" if {
	"skip" in results
	not "pass" in results
} else := "pass"
`,
	"scalar": `# scalar: the result of a value, or of all elements of a list.
scalar(wrong) := "fail" if {
	count(wrong) > 0
} else := "pass"
`,
	"elements": `# elements: those of a list; any other value is its own element.
elements(value) := value if {
	is_array(value)
} else := [value]
`,
	"text_of": `# text_of: a string, number or boolean as text.
text_of(value) := value if {
	is_string(value)
} else := sprintf("%v", [value]) if {
	is_number(value)
} else := sprintf("%v", [value]) if {
	is_boolean(value)
}
`,
	"amount": `# amount: a quantity as a number; an absent one is 0.
amount(value) := 0 if {
	value == null
} else := value if {
	is_number(value)
} else := units.parse(value) if {
	is_string(value)
	regex.match("^-?[0-9]+([.][0-9]+)?(m|k|[KMGTPE]i?)?$", value)
}
`,
	"seconds": `# seconds: a duration, such as 1h30m, in nanoseconds.
seconds(value) := time.parse_duration_ns(value) if {
	is_string(value)
	regex.match("^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$", value)
}
`,
}
