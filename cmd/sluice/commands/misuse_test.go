// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"strings"
	"testing"
)

// Wrong arguments and flags are errors that say how the command is used.
func TestMisuse(t *testing.T) {
	for call, want := range map[string]string{
		"get":                "accepts 1 arg(s), received 0; usage: `sluice get NAME [flags]`",
		"project set":        "accepts 1 arg(s), received 0; usage: `sluice project set NAME [flags]`",
		"stop":               "requires at least 1 arg(s), only received 0; usage: `sluice stop NAME... [flags]`",
		"list all":           "usage: `sluice list [flags]`",
		"preset lst":         "unknown command \"lst\" for \"sluice preset\"; did you mean `sluice preset list`?",
		"preset nonsense":    "`sluice preset --help` lists its commands",
		"submit --imge x":    "unknown flag: --imge; did you mean --image? `sluice submit --help` lists its flags",
		"list --projcet x":   "unknown flag: --projcet; did you mean --project? `sluice list --help` lists its flags",
		"list --nonsense":    "unknown flag: --nonsense; `sluice list --help` lists its flags",
		"list -y":            "unknown shorthand flag: 'y' in -y; `sluice list --help` lists its flags",
		"logs x --tail -5":   "--tail -5: want a number of lines, or -1 for all",
		"logs x --since=-5m": "--since -5m0s: want a time such as 5m",
		"list -o nonsense":   "want table, wide, json or yaml; `sluice list --help` lists its flags",
	} {
		_, err := runCommand(t, strings.Fields(call)...)
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("sluice %s: %v; want an error that ends with %q", call, err, want)
		}
	}
	if _, err := runCommand(t, "doctor", "nonsense"); ExitStatus(err) != 2 {
		t.Errorf("sluice doctor with an argument: exit status %d, %v", ExitStatus(err), err)
	}
}
