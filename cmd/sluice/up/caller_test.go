// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"os/exec"
	"testing"
)

func TestQuotedIsOneWordOfTheShell(t *testing.T) {
	tests := map[string]string{
		"/tmp/a-b_c.d":  "/tmp/a-b_c.d",
		"":              "''",
		"it's me":       `'it'\''s me'`,
		"~/x":           "'~/x'",
		"a$(touch b);c": "'a$(touch b);c'",
		"two\nlines":    "'two\nlines'",
	}
	for text, want := range tests {
		if got := quoted(text); got != want {
			t.Errorf("quoted(%q) = %s, want %s", text, got, want)
		}
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+quoted(text)).Output()
		if err != nil || string(out) != text {
			t.Errorf("the shell reads quoted(%q) as %q, %v", text, out, err)
		}
	}
}

func TestPathsFromWhereTheCallerStands(t *testing.T) {
	tests := map[string]struct {
		dir, path, want, lasting string
	}{
		"below":             {"/lab/a", "/lab/a/.sluice/kubeconfig", ".sluice/kubeconfig", `"$PWD"/.sluice/kubeconfig`},
		"below, odd":        {"/lab/a", "/lab/a/b c/k", "'b c/k'", `"$PWD"/'b c/k'`},
		"here":              {"/lab/a", "/lab/a", ".", `"$PWD"/.`},
		"beside":            {"/lab/a", "/lab/ab/k", "/lab/ab/k", "/lab/ab/k"},
		"above":             {"/lab/a", "/lab/k", "/lab/k", "/lab/k"},
		"a name with dots":  {"/lab/a", "/lab/a/..b/k", "..b/k", `"$PWD"/..b/k`},
		"elsewhere, odd":    {"/lab/a", "/shelf/b c", "'/shelf/b c'", "'/shelf/b c'"},
		"nobody knows here": {"", "/shelf/k", "/shelf/k", "/shelf/k"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			who := caller{dir: tc.dir}
			if got := who.path(tc.path); got != tc.want {
				t.Errorf("path = %s, want %s", got, tc.want)
			}
			if got := who.lasting(tc.path); got != tc.lasting {
				t.Errorf("lasting = %s, want %s", got, tc.lasting)
			}
		})
	}
}

func TestProgramOf(t *testing.T) {
	for arg0, want := range map[string]string{
		"sluice":                        "sluice",
		"bin/sluice":                    "bin/sluice",
		"/opt/my tools/sluice":          "'/opt/my tools/sluice'",
		"/usr/local/bin/kubectl-sluice": "kubectl sluice",
	} {
		if got := programOf(arg0); got != want {
			t.Errorf("programOf(%q) = %s, want %s", arg0, got, want)
		}
	}
}
