// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/clustertest"
)

// engine is the scheduler of a project.
type engine string

const (
	kube  engine = "kube-scheduler"
	kueue engine = "kueue" // it runs
	kai   engine = "kai"   // only its kinds exist
)

var everyEngine = []engine{kube, kueue, kai}

// pools are the node pools by engine. Pools direct and whole have a node with eight GPUs,
// direct-mig one with MIG devices, kai none.
var pools = map[engine][]string{kube: {"direct", "direct-mig"}, kueue: {"whole"}, kai: {"kai"}}

const (
	faculty       = "hostile" // the department of the attacked projects
	otherFaculty  = "hostile-other"
	neighborhood  = "hostile-neighbor"  // another project of the department, on kube-scheduler
	elsewhere     = "hostile-elsewhere" // a project of the other department
	ending        = "hostile-ending"    // an expired project whose deletion is requested, and its department
	setupTimeout  = 10 * time.Minute
	setupInterval = 50 * time.Millisecond
)

// projectOf returns the attacked project of an engine; its namespace has the same name.
func projectOf(e engine) string { return "hostile-" + string(e) }

// tests starts the cluster of the package.
var tests *clustertest.SluiceTests

func TestMain(m *testing.M) {
	os.Exit(clustertest.RunWithSluice(func(s *clustertest.SluiceTests) (int, error) {
		tests = s
		return m.Run(), nil
	}))
}

// world is the cluster with its departments, projects and users.
type world struct {
	*clustertest.Sluice
	http     *http.Client
	mapper   meta.RESTMapper
	clock    *policytime.File
	clients  sync.Map // user name -> func() (client.Client, error)
	fixtures sync.Map // key -> func() (*unstructured.Unstructured, error)
	controls sync.Map // key -> func() error
}

var startWorld = sync.OnceValues(func() (*world, error) {
	s, err := startSluice()
	if err != nil {
		return nil, err
	}
	w := &world{Sluice: s}
	if w.http, err = rest.HTTPClientFor(s.Config); err != nil {
		return nil, err
	}
	if w.clock, err = policytime.OpenFile(filepath.Join(s.Dir, policytime.FileName), nil); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	return w, w.setUp(ctx)
})

// clusterVariable is the folder of a running `sluice up --scheduler kueue`, which the tests then use.
const clusterVariable = "SLUICE_HOSTILE_DIR"

func startSluice() (*clustertest.Sluice, error) {
	if dir := os.Getenv(clusterVariable); dir != "" {
		return clustertest.AttachSluice(dir)
	}
	return tests.Start("hostile", "--scheduler", "kueue")
}

// start returns the cluster and starts it if necessary.
func start(t *testing.T) *world {
	t.Helper()
	w, err := startWorld()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) setUp(ctx context.Context) error {
	if err := w.installKAI(ctx); err != nil {
		return fmt.Errorf("install KAI's kinds: %w", err)
	}
	var err error
	if w.mapper, err = apiutil.NewDynamicRESTMapper(w.Config, w.http); err != nil {
		return err
	}
	// The sample of Kueue has no pool of kube-scheduler: it gets a node with whole GPUs and the one
	// with MIG.
	for node, pool := range map[string]string{"dgx-2": "direct", "dgx-3": "direct-mig"} {
		label := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, v1alpha1.LabelNodePool, pool))
		if err := w.Admin.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, label); err != nil {
			return err
		}
	}
	if err := w.apply(ctx, poolsText); err != nil {
		return err
	}
	if err := w.offerOtherNames(ctx); err != nil {
		return fmt.Errorf("offer GPUs of other names: %w", err)
	}
	for department, text := range map[string]string{faculty: facultyText, otherFaculty: otherFacultyText, ending: endingText} {
		if err := w.apply(ctx, text); err != nil {
			return fmt.Errorf("department %s: %w", department, err)
		}
	}
	if err := w.grantNamespaceAdmin(ctx); err != nil {
		return err
	}
	var all sync.WaitGroup
	projects := map[string]engine{neighborhood: kube, elsewhere: kube, ending: kube}
	for _, e := range everyEngine {
		projects[projectOf(e)] = e
	}
	failures := make(chan error, len(projects))
	for name, e := range projects {
		all.Go(func() {
			err := w.createProject(ctx, name, cmp.Or(departmentOf[name], faculty), e)
			if err == nil && name == ending {
				err = w.requestDeletion(ctx)
			}
			if err != nil {
				failures <- fmt.Errorf("project %s: %w", name, err)
			}
		})
	}
	all.Wait()
	close(failures)
	for failure := range failures {
		err = errors.Join(err, failure)
	}
	return err
}

// departmentOf are the departments of the projects that are not of the faculty.
var departmentOf = map[string]string{elsewhere: otherFaculty, ending: ending}

// The quotas are large: rows about limits create projects of their own.
const (
	poolsText = `
{apiVersion: sluice.dev/v1alpha1, kind: NodePool, metadata: {name: direct},
 spec: {nodeSelector: {sluice.dev/node-pool: direct}, scheduler: kube-scheduler, sharing: None, resources: [{name: example.com/named, gpus: 2}], tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]}}
---
{apiVersion: sluice.dev/v1alpha1, kind: NodePool, metadata: {name: direct-mig},
 spec: {nodeSelector: {sluice.dev/node-pool: direct-mig}, scheduler: kube-scheduler, sharing: MIG, mig: {planning: Dynamic}, tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]}}
---
{apiVersion: sluice.dev/v1alpha1, kind: NodePool, metadata: {name: refusing},
 spec: {nodeSelector: {sluice.dev/node-pool: refusing}, scheduler: kube-scheduler, sharing: None, cpuPods: Refuse}}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: hostile-high}, value: 1000000}
---
{apiVersion: sluice.dev/v1alpha1, kind: NodePool, metadata: {name: kai},
 spec: {nodeSelector: {kai.scheduler/node-pool: kai}, scheduler: kai, sharing: KAI}}
`
	facultyText = `
apiVersion: sluice.dev/v1alpha1
kind: Department
metadata: {name: hostile}
spec:
  contacts: [{name: Desk, email: desk@example.org}]
  nodePools:
  - {name: direct, gpu: {guaranteed: "100", limit: "1000"}}
  - {name: direct-mig, gpu: {guaranteed: "100", limit: "1000"}}
  - {name: whole, gpu: {guaranteed: "100", limit: "100"}}
  - {name: kai, gpu: {guaranteed: "100", limit: "100"}}
  members:
  - {kind: User, name: department-administrator@hostile.example, role: department-administrator}
  workloads: {"*": {maxRuntime: 48h, resetAfter: 1h}}
  extensions: {selfService: 2, maxDuration: 24h, window: 30d, approvers: [department-administrator]}
  notices: {workloadEnd: [24h, 4h, 30m]}
  services: {ingressHosts: ["*.hostile.example"]}
`
	otherFacultyText = `
apiVersion: sluice.dev/v1alpha1
kind: Department
metadata: {name: hostile-other}
spec:
  contacts: [{name: Desk, email: desk@example.org}]
  nodePools: [{name: direct, gpu: {guaranteed: "100", limit: "100"}}]
  members: [{kind: User, name: stranger@hostile.example, role: department-administrator}]
  workloads: {"*": {maxRuntime: 48h, resetAfter: 1h}}
`
	endingText = `
apiVersion: sluice.dev/v1alpha1
kind: Department
metadata: {name: hostile-ending}
spec:
  contacts: [{name: Desk, email: desk@example.org}]
  nodePools: [{name: direct, gpu: {guaranteed: "100", limit: "100"}}]
  members: [{kind: User, name: administrator@hostile-ending, role: department-administrator}]
  projects: {validity: P6M, renewals: {selfService: 1, approvers: [department-administrator, editor, research-manager]}}
  extensions: {approvers: [department-administrator, editor, research-manager]}
`
)

// createProject creates a project with all roles, and waits until they have their rights. Changes
// are applied to its spec.
func (w *world) createProject(ctx context.Context, name, department string, e engine, changes ...func(*v1alpha1.Project)) error {
	p := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ProjectSpec{
		Department: department,
		Owners:     []v1alpha1.Owner{{Contact: v1alpha1.Contact{Name: "Owner", Email: "owner@example.org"}, User: ownerOf(name)}},
		Members:    membersOf(name),
	}}
	for _, pool := range pools[e] {
		if department == faculty || pool == "direct" {
			p.Spec.NodePools = append(p.Spec.NodePools, poolQuota(pool, "0", "40"))
		}
	}
	for _, change := range changes {
		change(p)
	}
	if err := eventually(ctx, func() error { return client.IgnoreAlreadyExists(w.Admin.Create(ctx, p)) }); err != nil {
		return err
	}
	if err := eventually(ctx, func() error { return w.checkReady(ctx, p) }); err != nil {
		return err
	}
	return eventually(ctx, func() error {
		for _, user := range usersOf(p) {
			as, err := w.clientFor(user)
			if err != nil {
				return err
			}
			if err := as.List(ctx, &corev1.PodList{}, client.InNamespace(name), client.Limit(1)); err != nil {
				return fmt.Errorf("as %s: %w", user, err)
			}
		}
		return nil
	})
}

// ownerOf returns the owner of a project.
func ownerOf(project string) string {
	if project == neighborhood || project == elsewhere {
		return "owner@" + project
	}
	return owner.user("")
}

// usersOf returns the users who may read the pods of a project.
func usersOf(p *v1alpha1.Project) []string {
	list := []string{namespaceAdmin.user(""), p.Spec.Owners[0].User}
	if p.Spec.Department == faculty {
		list = append(list, dean.user(""))
	}
	for _, m := range p.Spec.Members {
		if m.Kind == v1alpha1.MemberServiceAccount {
			m.Name = "system:serviceaccount:" + m.Namespace + ":" + m.Name
		}
		list = append(list, m.Name)
	}
	return list
}

// checkReady returns an error unless members may create pods that the quotas count.
func (w *world) checkReady(ctx context.Context, p *v1alpha1.Project) error {
	if err := w.Admin.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
		return err
	}
	if !meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReady) || !meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionQuotaApplied) {
		return fmt.Errorf("project %s is not ready: %+v", p.Name, p.Status.Conditions)
	}
	ns := &corev1.Namespace{}
	if err := w.Admin.Get(ctx, types.NamespacedName{Name: p.Name}, ns); err != nil {
		return err
	}
	if ns.Labels[v1alpha1.LabelProject] != p.Name {
		return fmt.Errorf("namespace %s has no project label", p.Name)
	}
	return w.Admin.Get(ctx, types.NamespacedName{Namespace: p.Name, Name: "default"}, &corev1.ServiceAccount{})
}

// apply creates the objects of a YAML text.
func (w *world) apply(ctx context.Context, text string) error {
	for document := range splitDocuments(text) {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			return err
		}
		if len(object.Object) == 0 {
			continue
		}
		if err := eventually(ctx, func() error { return client.IgnoreAlreadyExists(w.Admin.Create(ctx, object)) }); err != nil {
			return fmt.Errorf("create %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// installKAI creates the kinds and the configuration of KAI-Scheduler.
func (w *world) installKAI(ctx context.Context) error {
	files, err := filepath.Glob("../testdata/kai/*.yaml")
	if err != nil || len(files) != 5 {
		return fmt.Errorf("found the definitions %v: %w", files, err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := w.apply(ctx, string(raw)); err != nil {
			return err
		}
	}
	return w.apply(ctx, `{apiVersion: kai.scheduler/v1, kind: Config, metadata: {name: kai-config},
 spec: {admission: {gpuSharing: true, mutatingWebhookConfigurationName: zz-kai-admission}}}`)
}

// grantNamespaceAdmin grants the namespace administrator more than any role of Sluice, so that
// only admission is left.
func (w *world) grantNamespaceAdmin(ctx context.Context) error {
	const name = "hostile-namespace-admin"
	everything := func(group string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: []string{"*"}}
	}
	err := w.Admin.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		everything("", "pods", "pods/binding", "bindings", "pods/status", "pods/ephemeralcontainers", "pods/resize", "pods/eviction",
			"namespaces", "namespaces/status", "namespaces/finalize", "replicationcontrollers", "services", "configmaps",
			"resourcequotas", "resourcequotas/status", "limitranges"),
		everything("apps", "*"), everything("batch", "*"), everything("jobset.x-k8s.io", "*"), everything("kueue.x-k8s.io", "*"),
		everything("resource.k8s.io", "*"), everything("scheduling.run.ai", "*"), everything("networking.k8s.io", "*"),
		everything("policy", "poddisruptionbudgets"),
	}})
	if client.IgnoreAlreadyExists(err) != nil {
		return err
	}
	return client.IgnoreAlreadyExists(w.Admin.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: namespaceAdmin.user("")}},
	}))
}

// eventually waits until the condition holds, and returns its last error otherwise.
func eventually(ctx context.Context, condition func() error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, setupInterval, true, func(context.Context) (bool, error) {
		last = condition()
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}
