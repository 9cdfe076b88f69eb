// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"sluice.dev/api/v1alpha1"

	"sluice.dev/test/clustertest"
)

// TestFromRunai runs docs/platform/from-runai.md as a member of a project, and expects the output that the page shows.
func TestFromRunai(t *testing.T) {
	t.Parallel()
	const project, user = "team-a", "jane@example.org"
	quotas := []v1alpha1.PoolQuota{newPoolQuota("dgx", "2", "4"), newPoolQuota("dgx-mig", "2", "4")}
	sharedCluster.createForTest(t, newServiceDepartment(project, quotas...))
	sharedCluster.createProjectWithMembers(t, project, project, map[string]v1alpha1.Role{user: v1alpha1.RoleL1Researcher}, quotas...)
	sharedCluster.comparePage(t, filepath.Join("docs", "platform", "from-runai.md"), user, 20)
}

// TestMistakesOfResearchers makes the mistakes of docs/researcher/mistakes.md as a member of a project, and expects the messages
// that the page shows. TestMistakesNameCommands in cmd/sluice/commands parses the commands that these name.
func TestMistakesOfResearchers(t *testing.T) {
	t.Parallel()
	const project, user = "team-b", "jane@example.org"
	quotas := []v1alpha1.PoolQuota{newPoolQuota("dgx", "2", "4"), newPoolQuota("dgx-mig", "2", "4")}
	sharedCluster.createDepartment(t, project, quotas...)
	sharedCluster.createProjectWithMembers(t, project, project, map[string]v1alpha1.Role{user: v1alpha1.RoleL1Researcher}, quotas...)
	sharedCluster.comparePage(t, filepath.Join("docs", "researcher", "mistakes.md"), user, 18)
}

// TestSubmitPage runs docs/researcher/submit.md as an L2 researcher. What needs the right to create Ingresses is in TestSubmit.
func TestSubmitPage(t *testing.T) {
	t.Parallel()
	const project, user = "team-c", "jane@example.org"
	quota := newPoolQuota("dgx-mig", "500m", "1")
	sharedCluster.createForTest(t, newServiceDepartment(project, quota))
	sharedCluster.createProjectWithMembers(t, project, project, map[string]v1alpha1.Role{user: v1alpha1.RoleL2Researcher}, quota)
	sharedCluster.comparePage(t, filepath.Join("docs", "researcher", "submit.md"), user, 11)
}

// TestPresetsPage runs docs/researcher/presets.md as a member of a project, with the presets of manifests/samples/presets/cluster.yaml.
func TestPresetsPage(t *testing.T) {
	t.Parallel()
	const project, user = "presets-course", "jane@example.org"
	quota := newPoolQuota("dgx-mig", "500m", "1")
	sharedCluster.createForTest(t, newServiceDepartment(project, quota))
	sharedCluster.createProjectWithMembers(t, project, project, map[string]v1alpha1.Role{user: v1alpha1.RoleL1Researcher}, quota)
	sharedCluster.createSamplePresets(t)
	sharedCluster.comparePage(t, filepath.Join("docs", "researcher", "presets.md"), user, 10)
}

// comparePage runs the commands of a page as a user, and compares their output with the page.
func (s *sluiceCluster) comparePage(t *testing.T, file, user string, atLeast int) {
	t.Helper()
	root, err := clustertest.Root()
	if err != nil {
		t.Fatal(err)
	}
	page := readTour(t, filepath.Join(root, file), atLeast)
	page.compare(t, runTour(t, t.TempDir(), page.steps,
		"KUBECONFIG="+s.writeKubeconfigOf(t, user), "PATH="+filepath.Dir(s.binary)+":"+os.Getenv("PATH")))
}

// writeKubeconfigOf writes a kubeconfig with a login of the user and nothing else, and returns its path.
func (s *sluiceCluster) writeKubeconfigOf(t *testing.T, user string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(filepath.Join(s.dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	login := s.issueLogin(t, user)
	for name := range config.AuthInfos {
		config.AuthInfos[name] = login
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}
