// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package queues_test

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"sluice.dev/api"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/notification"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/lifecycle/rendering/queues"
	"sluice.dev/lifecycle/tenancy/project"
	"sluice.dev/policies/engine"
	"sluice.dev/test/clustertest"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	clustertest.Main(m, clustertest.InstallKinds)
}

var (
	//go:embed testdata/engines.yaml
	engineKinds []byte
	//go:embed testdata/engines.rego
	enginePolicy string
)

// testEnv is what keeps queues and projects at work, and an administrator beside it.
type testEnv struct {
	testing.TB
	client.Client // the administrator's

	policies *policyStub
	// writes are lifecycle's until now; after limit of them none arrives any more.
	writes, limit atomic.Int64
	logs          *errorLog
	stop          func()
}

// startTestEnv runs it until the test ends.
func startTestEnv(t testing.TB) *testEnv {
	t.Helper()
	w := &testEnv{TB: t, Client: clustertest.Admin(t), policies: newPolicyStub(t), logs: &errorLog{}}
	w.limit.Store(1 << 60)
	kinds, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	often := true
	ours := cache.ByObject{Label: labels.SelectorFromSet(apply.ManagedLabels())}
	byObject := map[client.Object]cache.ByObject{}
	for _, object := range apply.WatchedObjects() {
		byObject[object] = ours
	}
	logger := funcr.New(w.logs.add, funcr.Options{})
	mgr, err := ctrl.NewManager(clustertest.Start(t).Config(), ctrl.Options{
		Scheme: kinds, Logger: logger, Controller: config.Controller{SkipNameValidation: &often},
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Cache: cache.Options{ByObject: byObject, DefaultTransform: cache.TransformStripManagedFields()},
	})
	if err != nil {
		t.Fatal(err)
	}
	engines, err := apply.NewQueueWatcher(mgr.GetConfig(), mgr.GetHTTPClient(), apply.QueueWatcherOptions{
		Kinds: apply.QueueKinds(), DiscoveryInterval: 100 * time.Millisecond, Logger: logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	writing := &limitedWriter{mgr.GetClient(), w}
	manager := queues.Manager{Client: writing, Live: mgr.GetAPIReader(), Policies: w.policies.engine, PolicyChanges: w.policies, Queues: engines, Cache: &apply.Cache{}}
	if err := errors.Join(
		mgr.Add(engines),
		inventory.IndexProjects(t.Context(), mgr.GetFieldIndexer()),
		(&queues.DepartmentReconciler{Manager: manager}).SetupWithManager(mgr),
		(&queues.NodePoolReconciler{Manager: manager}).SetupWithManager(mgr),
		(&project.Reconciler{
			Client: writing, Live: mgr.GetAPIReader(), Policies: w.policies.engine, PolicyChanges: w.policies, Queues: engines,
			Events: mgr.GetEventRecorder("test"), Clock: policytime.System(), Access: noAccess{},
			Pods: noPods{}, Notices: notification.Recorder{Client: writing, Live: mgr.GetAPIReader()},
		}).SetupWithManager(mgr),
	); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(w.stop)
	return w
}

// noPods: nothing runs in these projects.
type noPods struct{}

func (noPods) HasSynced() bool { return true }

func (noPods) InNamespace(string) iter.Seq[*podcache.Pod] { return func(func(*podcache.Pod) bool) {} }

// noAccess: the members of these projects have none.
type noAccess struct{}

func (noAccess) Revoke(context.Context, *v1alpha1.Project) error { return nil }

func (noAccess) RevokeNamespace(context.Context, *v1alpha1.Project, string) error { return nil }

// policyStub are one policy, which a test may change.
type policyStub struct {
	testing.TB
	engine *engine.Engine

	mu        sync.Mutex
	loaded    bool
	listeners []func([]engine.Report)
}

func newPolicyStub(t testing.TB) *policyStub {
	e, err := engine.New(engine.Options{Limits: engine.Limits{Evaluation: time.Minute, Request: time.Minute}}) // for a busy machine
	if err != nil {
		t.Fatal(err)
	}
	return &policyStub{TB: t, engine: e}
}

// OnReports implements apply.PolicyChanges.
func (p *policyStub) OnReports(listener func([]engine.Report)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listeners = append(p.listeners, listener)
	if p.loaded {
		listener(nil)
	}
}

// setPolicy puts a policy in force.
func (p *policyStub) setPolicy(rego string) {
	p.Helper()
	for _, report := range p.engine.Update([]engine.Source{{Name: "test", Rego: rego}}) {
		for _, problem := range report.Problems {
			p.Fatal(problem)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loaded = true
	for _, listener := range p.listeners {
		listener(nil)
	}
}

// errWriteLimit is the error of a writer at its limit.
var errWriteLimit = errors.New("crashed")

// limitedWriter counts what lifecycle writes, and fails after the limit.
type limitedWriter struct {
	client.Client

	env *testEnv
}

func (c *limitedWriter) countWrite() error {
	if c.env.writes.Add(1) > c.env.limit.Load() {
		return errWriteLimit
	}
	return nil
}

func (c *limitedWriter) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	return errors.Join(c.countWrite(), c.ifWithinLimit(func() error { return c.Client.Create(ctx, object, options...) }))
}

func (c *limitedWriter) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	return errors.Join(c.countWrite(), c.ifWithinLimit(func() error { return c.Client.Delete(ctx, object, options...) }))
}

func (c *limitedWriter) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	return errors.Join(c.countWrite(), c.ifWithinLimit(func() error { return c.Client.Patch(ctx, object, patch, options...) }))
}

func (c *limitedWriter) Apply(ctx context.Context, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	return errors.Join(c.countWrite(), c.ifWithinLimit(func() error { return c.Client.Apply(ctx, object, options...) }))
}

func (c *limitedWriter) Status() client.SubResourceWriter {
	return &limitedStatusWriter{c.Client.Status(), c}
}

// ifWithinLimit does it unless the limit is passed.
func (c *limitedWriter) ifWithinLimit(do func() error) error {
	if c.env.writes.Load() > c.env.limit.Load() {
		return nil
	}
	return do()
}

type limitedStatusWriter struct {
	client.SubResourceWriter

	writer *limitedWriter
}

func (s *limitedStatusWriter) Update(ctx context.Context, object client.Object, options ...client.SubResourceUpdateOption) error {
	return errors.Join(s.writer.countWrite(), s.writer.ifWithinLimit(func() error { return s.SubResourceWriter.Update(ctx, object, options...) }))
}

func (s *limitedStatusWriter) Apply(ctx context.Context, object runtime.ApplyConfiguration, options ...client.SubResourceApplyOption) error {
	return errors.Join(s.writer.countWrite(), s.writer.ifWithinLimit(func() error { return s.SubResourceWriter.Apply(ctx, object, options...) }))
}

// errorLog keeps what was logged as an error.
type errorLog struct {
	mu     sync.Mutex
	errors []string
}

func (l *errorLog) add(_, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.Contains(line, `"error"=`) {
		l.errors = append(l.errors, line)
	}
}

// requireNoErrors fails the test where something was logged as an error.
func (w *testEnv) requireNoErrors() {
	w.Helper()
	w.logs.mu.Lock()
	defer w.logs.mu.Unlock()
	if len(w.logs.errors) > 0 {
		w.Errorf("%d errors were logged, such as %s", len(w.logs.errors), w.logs.errors[0])
	}
}

// engineCRDs are the CRDs of the engines.
func engineCRDs(t testing.TB) []*unstructured.Unstructured {
	t.Helper()
	var list []*unstructured.Unstructured
	for reader := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(engineKinds), 4096); ; {
		object := &unstructured.Unstructured{}
		if err := reader.Decode(object); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, object)
	}
}

// installCRDs makes the API server serve the engines' kinds.
func installCRDs(t testing.TB) {
	t.Helper()
	admin := clustertest.Admin(t)
	for _, definition := range engineCRDs(t) {
		clustertest.Eventually(t, func() error {
			if err := client.IgnoreAlreadyExists(admin.Create(t.Context(), definition.DeepCopy())); err != nil {
				return err
			}
			now := definition.DeepCopy()
			if err := admin.Get(t.Context(), client.ObjectKeyFromObject(now), now); err != nil {
				return err
			}
			conditions, _, _ := unstructured.NestedSlice(now.Object, "status", "conditions")
			for _, condition := range conditions {
				c, _ := condition.(map[string]any)
				if c["type"] == string(apiextensionsv1.Established) && c["status"] == "True" && now.GetDeletionTimestamp() == nil {
					return nil
				}
			}
			return fmt.Errorf("%s is not served yet", now.GetName())
		})
	}
}

// uninstallCRDs makes it serve them no more.
func uninstallCRDs(t testing.TB) {
	t.Helper()
	clustertest.RemoveKinds(t, clustertest.Admin(t), engineCRDs(t))
}

// createPool, department and project make one, which goes when the test has ended.
func (w *testEnv) createPool(name string, scheduler v1alpha1.Scheduler) *v1alpha1.NodePool {
	return createObject(w, &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodePoolSpec{
		Scheduler: scheduler, NodeSelector: map[string]string{"pool": name},
	}})
}

func (w *testEnv) createDepartment(name string, pools ...string) *v1alpha1.Department {
	return createObject(w, &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.DepartmentSpec{NodePools: poolQuotas("8", pools...)}})
}

func (w *testEnv) createProject(name, department string, pools ...string) *v1alpha1.Project {
	return createObject(w, &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ProjectSpec{
		Department: department, Owners: []v1alpha1.Owner{{Contact: v1alpha1.Contact{Name: "A", Email: "a@example.org"}}}, NodePools: poolQuotas("2", pools...),
	}})
}

func poolQuotas(number string, pools ...string) []v1alpha1.PoolQuota {
	var quotas []v1alpha1.PoolQuota
	for _, pool := range pools {
		quotas = append(quotas, v1alpha1.PoolQuota{Name: pool, GPU: v1alpha1.GPUQuota{Guaranteed: resource.MustParse(number), Limit: resource.MustParse("8")}})
	}
	return quotas
}

func createObject[T client.Object](w *testEnv, object T) T {
	w.Helper()
	if err := w.Create(w.Context(), object); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { // also after a failure: the next test starts without it
		object.SetFinalizers(nil)
		_ = w.Patch(context.Background(), object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		if err := client.IgnoreNotFound(w.Delete(context.Background(), object)); err != nil {
			w.Error(err)
		}
	})
	return object
}

// newKueueObject is an empty object of a kind of Kueue.
func newKueueObject(kind, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: kind})
	object.SetName(name)
	if kind == "LocalQueue" {
		object.SetNamespace(name)
		object.SetName("default")
	}
	return object
}

// specField is a field of the spec of an object as it is now.
func (w *testEnv) specField(object *unstructured.Unstructured, field string) (string, error) {
	if err := w.Get(w.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		return "", err
	}
	value, _, err := unstructured.NestedString(object.Object, "spec", field)
	return value, err
}

// waitForField waits until a field of an object is so.
func (w *testEnv) waitForField(object *unstructured.Unstructured, field, want string) {
	w.Helper()
	clustertest.Eventually(w, func() error {
		if got, err := w.specField(object, field); err != nil || got != want {
			return fmt.Errorf("spec.%s of %s %s is %q, want %q (%w)", field, object.GetKind(), object.GetName(), got, want, err)
		}
		return nil
	})
}

// waitForDeletion waits until an object is gone.
func (w *testEnv) waitForDeletion(object client.Object) {
	w.Helper()
	clustertest.Eventually(w, func() error {
		if err := w.Get(w.Context(), client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s %s exists: %w", object.GetObjectKind().GroupVersionKind().Kind, object.GetName(), err)
		}
		return nil
	})
}

// waitForCondition waits until an object has the condition about its queues.
func (w *testEnv) waitForCondition(object client.Object, conditions *[]metav1.Condition, status metav1.ConditionStatus, message string) {
	w.Helper()
	clustertest.Eventually(w, func() error {
		if err := w.Get(w.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		got := meta.FindStatusCondition(*conditions, v1alpha1.ConditionQueueApplied)
		if got == nil || got.Status != status || got.ObservedGeneration != object.GetGeneration() || !strings.Contains(got.Message, message) {
			return fmt.Errorf("%s has %+v, want %s with %q", object.GetName(), got, status, message)
		}
		return nil
	})
}

func (w *testEnv) mergePatch(object client.Object, change string, options ...client.PatchOption) {
	w.Helper()
	if err := w.Patch(w.Context(), object, client.RawPatch(types.MergePatchType, []byte(change)), options...); err != nil {
		w.Fatal(err)
	}
}
