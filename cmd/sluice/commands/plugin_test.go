// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api/v1alpha1"
)

func TestInvocationText(t *testing.T) {
	tests := map[string]string{
		"  # List\n  sluice clocks -A": "  # List\n  kubectl sluice clocks -A",
		"ask `sluice whoami`":          "ask `kubectl sluice whoami`",
		"x build | sluice policy":      "x build | kubectl sluice policy",
		"the namespace sluice-system":  "the namespace sluice-system",
		"label sluice.dev/project":     "label sluice.dev/project",
		"`sluice-cpu` is a class":      "`sluice-cpu` is a class",
	}
	for text, want := range tests {
		if got := InvokedAsPlugin.Text(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
		if got := InvokedAsSluice.Text(text); got != text {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}

// Called by its second name, the program has this name in each usage and example.
func TestPluginHelp(t *testing.T) {
	if got := InvocationOf("/home/anna/.krew/bin/kubectl-sluice"); got != InvokedAsPlugin {
		t.Errorf("kubectl-sluice is called as %q", got)
	}
	if got := InvocationOf("bin/sluice"); got != InvokedAsSluice {
		t.Errorf("sluice is called as %q", got)
	}
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		if !strings.HasPrefix(cmd.CommandPath(), "kubectl sluice") {
			t.Errorf("the path of a command is %q", cmd.CommandPath())
		}
		for line := range strings.Lines(cmd.Example) {
			if strings.HasPrefix(strings.TrimSpace(line), "sluice ") {
				t.Errorf("%s --help has the example %q", cmd.CommandPath(), line)
			}
		}
		for _, child := range cmd.Commands() {
			check(child)
		}
	}
	check(InvokedAsPlugin.RootCommand())
}

// kubectl finds plugin and completion, as `make install` installs them, and gets the completion through both.
func TestPluginCompletionScript(t *testing.T) {
	bin := t.TempDir()
	script, err := os.ReadFile(filepath.Join("..", "completion", "kubectl_complete-sluice"))
	if err != nil {
		t.Fatal(err)
	}
	// A kubectl that calls its plugin.
	kubectl := "#!/bin/sh\nplugin=$1; shift; exec \"kubectl-$plugin\" \"$@\"\n"
	plugin := "#!/bin/sh\nfor word in \"$@\"; do printf '[%s]' \"$word\"; done\n"
	for name, text := range map[string]string{"kubectl": kubectl, "kubectl-sluice": plugin, "kubectl_complete-sluice": string(script)} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.CommandContext(t.Context(), filepath.Join(bin, "kubectl_complete-sluice"), "clocks", "--project", "")
	command.Env = []string{"PATH=" + bin + ":/usr/bin:/bin"}
	output, err := command.CombinedOutput()
	if want := "[__complete][clocks][--project][]"; err != nil || string(output) != want {
		t.Errorf("the plugin is called with %s, %v; want %s", output, err, want)
	}
}

// Each shell accepts its script. A shell that is not installed is skipped.
func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			script, err := runCommand(t, "completion", shell)
			if err != nil || !strings.Contains(script, "__complete") {
				t.Fatalf("%v\n%s", err, script)
			}
			program, err := exec.LookPath(shell)
			if err != nil {
				t.Skipf("%s is not installed", shell)
			}
			path := filepath.Join(t.TempDir(), "completion")
			if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
				t.Fatal(err)
			}
			if output, err := exec.CommandContext(t.Context(), program, "-n", path).CombinedOutput(); err != nil {
				t.Errorf("%s -n: %v\n%s", shell, err, output)
			}
		})
	}
}

// Bash completes a command through the script of `sluice completion bash`.
func TestBashCompletes(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	script, err := runCommand(t, "completion", "bash")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	answer := completionOf(t, "clocks", "-o", "")
	if err := os.WriteFile(filepath.Join(bin, "answer"), []byte(answer), 0o600); err != nil {
		t.Fatal(err)
	}
	sluice := "#!/bin/sh\n[ \"$1 $2\" = '__complete clocks' ] && cat '" + bin + "/answer'\n"
	if err := os.WriteFile(filepath.Join(bin, "sluice"), []byte(sluice), 0o755); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), bash, "--norc", "-c", script+`
_get_comp_words_by_ref() { cur=""; prev="-o"; words=(sluice clocks -o ""); cword=3; }
COMP_TYPE=9; COMP_WORDS=(sluice clocks -o ""); COMP_CWORD=3; COMP_LINE="sluice clocks -o "; COMP_POINT=17
__start_sluice
printf '%s\n' "${COMPREPLY[@]}"`)
	command.Env = []string{"PATH=" + bin + ":/usr/bin:/bin"}
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if want := "table\nwide\njson\nyaml\n"; err != nil || string(output) != want {
		t.Errorf("bash completes %q, %v; want %q\n%s", output, err, want, stderr.String())
	}
}

// completionOf returns what the program answers to the shells' scripts.
func completionOf(t *testing.T, args ...string) string {
	t.Helper()
	output, err := runCommand(t, append([]string{"__complete"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	output, _, _ = strings.Cut(output, "Completion ended") // on standard error
	return output
}

func TestKubeconfigNamesAreCompleted(t *testing.T) {
	t.Setenv("KUBECONFIG", writeKubeconfig(t, t.TempDir(), "near", "lab"))
	for flag, want := range map[string]string{"--context": "near", "--cluster": "near", "-n": "lab"} {
		if got := completionOf(t, "clocks", flag, ""); !strings.HasPrefix(got, want+"\n") {
			t.Errorf("%s is completed with %q, want %q", flag, got, want)
		}
	}
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	if got := completionOf(t, "clocks", "--context", ""); !strings.HasPrefix(got, ":4\n") {
		t.Errorf("without a kubeconfig --context is completed with %q, want no name", got)
	}
}

// A server that does not answer completes nothing, and prints nothing into the line that the user types.
func TestCompletionIsQuietOnErrors(t *testing.T) {
	path := writeKubeconfig(t, t.TempDir(), "near", "lab")
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	config.Clusters["near"].Server = "https://127.0.0.1:1"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", path)
	for _, args := range [][]string{
		{"get", ""}, {"stop", "a", ""}, {"logs", "job/"}, {"list", "-p", ""}, {"project", "set", ""}, {"clocks", "-p", ""}, {"extend", ""},
	} {
		if got := completionOf(t, args...); got != ":4\n" {
			t.Errorf("%v is completed with %q", args, got)
		}
	}
}

// A server that accepts connections and never answers holds a shell up for seconds, not for the timeout of commands.
func TestCompletionEndsSoon(t *testing.T) {
	timeouts := make(chan string, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		timeouts <- r.URL.Query().Get("timeout")
		<-r.Context().Done()
	}))
	defer server.Close()
	t.Setenv("KUBECONFIG", writeKubeconfig(t, t.TempDir(), "near", "lab"))
	for _, args := range [][]string{{"get", "--server", server.URL, ""}, {"clocks", "--server", server.URL, "-p", ""}} {
		if got := completionOf(t, args...); got != ":4\n" {
			t.Errorf("%v is completed with %q", args, got)
		}
		if timeout := <-timeouts; timeout != completionTimeout.String() {
			t.Errorf("%v sends a request with the timeout %s, want %s", args, timeout, completionTimeout)
		}
	}
}

// The names of projects and node pools are completed with all for those who may list them, and for others with those
// that they may get.
func TestListVisibleNames(t *testing.T) {
	admin := newFakeClient(t, interceptor.Funcs{},
		&v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "thesis"}}, &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "dgx-mig"}})
	member := asProjectMember(admin)
	projects := func(access *ownAccess) []string { return access.projects }
	pools := func(access *ownAccess) []string { return access.nodePools }
	for _, tc := range []struct {
		c    client.Client
		kind string
		own  func(*ownAccess) []string
		want []string
	}{
		{admin, "Project", projects, []string{"thesis"}},
		{admin, "NodePool", pools, []string{"dgx-mig"}},
		{member, "Project", projects, []string{"deleted", "thesis-mueller"}},
		{member, "NodePool", pools, []string{"dgx"}},
	} {
		if got, err := listVisibleNames(t.Context(), tc.c, tc.kind, tc.own); err != nil || cmp.Diff(tc.want, got) != "" {
			t.Errorf("%s: names %v, %v; want %v", tc.kind, got, err, tc.want)
		}
	}
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	flags, cmd := parseClusterFlags(t)
	if got, directive := flags.completePools(cmd, nil, ""); len(got) > 0 || directive != cobra.ShellCompDirectiveNoFileComp {
		t.Errorf("without a cluster, pools are completed with %v", got)
	}
}
