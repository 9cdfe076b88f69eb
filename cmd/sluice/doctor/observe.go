// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/notification/outbox"
	"sluice.dev/lifecycle/registration"
	"sluice.dev/lifecycle/rendering/admissionpolicy"
	"sluice.dev/lifecycle/timelimit/controller"
	"sluice.dev/manifests"
)

// NewScheme returns the kinds that the checks read.
func NewScheme() (*runtime.Scheme, error) {
	scheme, err := api.NewScheme()
	if err == nil {
		err = apiextensionsv1.AddToScheme(scheme)
	}
	return scheme, err
}

// Source is what [Observe] reads from.
type Source struct {
	// Reader reads with the user's rights; its scheme is that of [NewScheme].
	Reader    client.Reader
	Discovery discovery.ServerVersionInterface
	Resources discovery.ServerResourcesInterface
	// Create sends a request with dryRun=All. It may be nil: no probes are made then.
	Create func(ctx context.Context, object client.Object) Probe
	// Served returns the certificates that the webhook serves at a URL. It may be nil.
	Served func(ctx context.Context, url string) ([]byte, error)
}

// Observe reads the cluster. What the user must not read is recorded in the observation. It fails if the API server
// cannot be reached.
func Observe(ctx context.Context, source Source, o *Observation) error {
	info, err := source.Discovery.ServerVersion()
	if status := apierrors.APIStatus(nil); err != nil && !errors.As(err, &status) {
		return fmt.Errorf("reach the API server: %w", err)
	}
	o.Kubernetes = Read[string]{What: "get --raw /version", Err: err}
	if err == nil {
		o.Kubernetes.Value = info.GitVersion
	}
	if err := o.addExpected(manifests.Files); err != nil {
		return err
	}
	o.Resources = readResources(source.Resources)
	r := reader{ctx, source.Reader}
	o.CRDs = list(r, "customresourcedefinitions", &apiextensionsv1.CustomResourceDefinitionList{},
		func(l *apiextensionsv1.CustomResourceDefinitionList) []apiextensionsv1.CustomResourceDefinition {
			return l.Items
		})
	o.Nodes = list(r, "nodes", &corev1.NodeList{}, func(l *corev1.NodeList) []corev1.Node { return l.Items })
	o.Namespaces = list(r, "namespaces", &corev1.NamespaceList{}, func(l *corev1.NamespaceList) []corev1.Namespace { return l.Items })
	o.Parameters = get(r, "admissionparameters.sluice.dev", client.ObjectKey{Name: v1alpha1.AdmissionParametersName}, &v1alpha1.AdmissionParameters{})
	o.NodePools = list(r, "nodepools.sluice.dev", &v1alpha1.NodePoolList{},
		func(l *v1alpha1.NodePoolList) []v1alpha1.NodePool { return l.Items })
	o.readPods(r)
	if o.mayBeInstalled() {
		o.readSluice(r)
		o.readComponents(r)
		o.readAdmission(r, source)
		o.probe(ctx, source)
	}
	return nil
}

// reader reads for one observation.
type reader struct {
	ctx    context.Context //nolint:containedctx // that of one observation
	client client.Reader
}

// list lists objects of one kind.
func list[L client.ObjectList, T any](r reader, resource string, into L, items func(L) []T, options ...client.ListOption) Read[[]T] {
	read := Read[[]T]{What: "list " + resource}
	if read.Err = r.client.List(r.ctx, into, options...); read.Err == nil {
		read.Value = items(into)
	}
	return read
}

// get reads one object; nil if it does not exist.
func get[T client.Object](r reader, resource string, key client.ObjectKey, into T) Read[T] {
	read := Read[T]{What: "get " + resource + "/" + key.Name}
	if key.Namespace != "" {
		read.What += " -n " + key.Namespace
	}
	if read.Err = r.client.Get(r.ctx, key, into); read.Err == nil {
		read.Value = into
	}
	read.Err = client.IgnoreNotFound(read.Err)
	return read
}

func readResources(resources discovery.ServerResourcesInterface) Read[map[string]bool] {
	read := Read[map[string]bool]{What: "get --raw /apis", Value: map[string]bool{}}
	_, lists, err := resources.ServerGroupsAndResources()
	if !discovery.IsGroupDiscoveryFailedError(err) { // the server of an aggregated API may be down
		read.Err = err
	}
	for _, one := range lists {
		for i := range one.APIResources {
			read.Value[one.GroupVersion+"/"+one.APIResources[i].Name] = true
		}
	}
	return read
}

// podPageSize is the number of pods in one request.
const podPageSize = 500

// readPods lists all pods in pages, and keeps those that have not ended and request a GPU, or in a project what can be one.
func (o *Observation) readPods(r reader) {
	parameters := o.parameters()
	unlisted, units := o.unlistedResources()
	names := sortedKeys(unlisted)
	read := Read[[]corev1.Pod]{What: "list pods -A"}
	for next := ""; ; {
		var page corev1.PodList
		if read.Err = r.client.List(r.ctx, &page, client.Limit(podPageSize), client.Continue(next)); read.Err != nil {
			break
		}
		for i := range page.Items {
			pod := &page.Items[i]
			if !workload.IsPodTerminal(pod) && gpuRequest(pod, &parameters) != "" {
				read.Value = append(read.Value, *pod)
			}
			if units.Requested(pod, names) != "" && o.namespaceLabels(pod.Namespace)[v1alpha1.LabelProject] != "" {
				o.UnlistedPods = append(o.UnlistedPods, *pod)
			}
		}
		if next = page.Continue; next == "" {
			break
		}
	}
	o.GPUPods = read
}

// readSluice reads Sluice's own objects.
func (o *Observation) readSluice(r reader) {
	o.Departments = list(r, "departments.sluice.dev", &v1alpha1.DepartmentList{}, func(l *v1alpha1.DepartmentList) []v1alpha1.Department { return l.Items })
	o.Projects = list(r, "projects.sluice.dev", &v1alpha1.ProjectList{}, func(l *v1alpha1.ProjectList) []v1alpha1.Project { return l.Items })
	o.GPUNodes = list(r, "gpunodes.sluice.dev", &v1alpha1.GPUNodeList{}, func(l *v1alpha1.GPUNodeList) []v1alpha1.GPUNode { return l.Items })
	o.Policies = list(r, "policies.sluice.dev", &v1alpha1.PolicyList{}, func(l *v1alpha1.PolicyList) []v1alpha1.Policy { return l.Items })
	o.Clocks = list(r, "workloadclocks.sluice.dev -A", &v1alpha1.WorkloadClockList{}, func(l *v1alpha1.WorkloadClockList) []v1alpha1.WorkloadClock { return l.Items })
	o.Notices = list(r, "notices.sluice.dev", &v1alpha1.NoticeList{}, func(l *v1alpha1.NoticeList) []v1alpha1.Notice { return l.Items })
	configMap := func(name string) Read[*corev1.ConfigMap] {
		return get(r, "configmaps", client.ObjectKey{Namespace: systemNamespace, Name: name}, &corev1.ConfigMap{})
	}
	o.MailState, o.StopLimiter = configMap(outbox.MailStateConfigMapName), configMap(controller.StopLimiterConfigMapName)
	o.LifecycleConfig = configMap(lifecycleName)
}

// readComponents reads what runs Sluice.
func (o *Observation) readComponents(r reader) {
	here := client.InNamespace(systemNamespace)
	const in = " -n " + systemNamespace
	o.Leases = list(r, "leases"+in, &coordinationv1.LeaseList{}, func(l *coordinationv1.LeaseList) []coordinationv1.Lease { return l.Items }, here)
	o.Deployments = list(r, "deployments"+in, &appsv1.DeploymentList{}, func(l *appsv1.DeploymentList) []appsv1.Deployment { return l.Items }, here)
	o.Budgets = list(r, "poddisruptionbudgets"+in, &policyv1.PodDisruptionBudgetList{},
		func(l *policyv1.PodDisruptionBudgetList) []policyv1.PodDisruptionBudget { return l.Items }, here)
	o.Endpoints = list(r, "endpointslices"+in, &discoveryv1.EndpointSliceList{},
		func(l *discoveryv1.EndpointSliceList) []discoveryv1.EndpointSlice { return l.Items }, here)
	for _, namespace := range []string{agentNamespace, systemNamespace} {
		read := list(r, "daemonsets -n "+namespace, &appsv1.DaemonSetList{}, func(l *appsv1.DaemonSetList) []appsv1.DaemonSet { return l.Items },
			client.InNamespace(namespace))
		o.DaemonSets.Value = append(o.DaemonSets.Value, read.Value...)
		if read.Err != nil {
			o.DaemonSets.What, o.DaemonSets.Err = read.What, read.Err
		}
	}
}

// readAdmission reads the webhook configurations, the admission policies and the webhook's certificates.
func (o *Observation) readAdmission(r reader, source Source) {
	o.Validating = get(r, "validatingwebhookconfigurations", client.ObjectKey{Name: registration.Name}, &admissionv1.ValidatingWebhookConfiguration{})
	o.Mutating = get(r, "mutatingwebhookconfigurations", client.ObjectKey{Name: registration.Name}, &admissionv1.MutatingWebhookConfiguration{})
	o.AdmissionPolicies = list(r, "validatingadmissionpolicies", &admissionv1.ValidatingAdmissionPolicyList{},
		func(l *admissionv1.ValidatingAdmissionPolicyList) []admissionv1.ValidatingAdmissionPolicy {
			return l.Items
		})
	o.AdmissionBindings = list(r, "validatingadmissionpolicybindings", &admissionv1.ValidatingAdmissionPolicyBindingList{},
		func(l *admissionv1.ValidatingAdmissionPolicyBindingList) []admissionv1.ValidatingAdmissionPolicyBinding {
			return l.Items
		})
	secret := get(r, "secrets", client.ObjectKey{Namespace: systemNamespace, Name: certificatesSecret}, &corev1.Secret{})
	o.ServedCertificate = Read[[]byte]{What: secret.What, Err: secret.Err}
	if secret.Value != nil {
		o.ServedCertificate.Value = secret.Value.Data[corev1.TLSCertKey]
		return
	}
	if secret.Err == nil {
		o.ServedCertificate.Err = errors.New("it does not exist")
	}
	for _, entry := range o.entries() {
		if source.Served != nil && entry.Client.URL != nil {
			o.ServedCertificate.What = "read the certificate at " + *entry.Client.URL
			o.ServedCertificate.Value, o.ServedCertificate.Err = source.Served(r.ctx, *entry.Client.URL)
			return
		}
	}
}

// addExpected reads the manifests of this version.
func (o *Observation) addExpected(files fs.FS) error {
	base, err := manifests.BuildFrom(files, manifests.Base)
	if err != nil {
		return err
	}
	admission, err := admissionpolicy.LoadPolicies(files, false)
	if err != nil {
		return err
	}
	for _, object := range append(base, admission...) {
		switch object.GetKind() {
		case "CustomResourceDefinition":
			err = appendExpected(object, &o.ExpectedCRDs)
		case "ValidatingAdmissionPolicy":
			err = appendExpected(object, &o.ExpectedAdmissionPolicies)
		case "ValidatingAdmissionPolicyBinding":
			err = appendExpected(object, &o.ExpectedAdmissionBindings)
		case "ValidatingWebhookConfiguration":
			o.ExpectedValidating = &admissionv1.ValidatingWebhookConfiguration{}
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, o.ExpectedValidating)
		case "MutatingWebhookConfiguration":
			o.ExpectedMutating = &admissionv1.MutatingWebhookConfiguration{}
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, o.ExpectedMutating)
		}
		if err != nil {
			return fmt.Errorf("read manifest %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

func appendExpected[T any](object *unstructured.Unstructured, to *[]T) error {
	var typed T
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &typed)
	*to = append(*to, typed)
	return err
}

// probe sends the requests that only Sluice refuses.
func (o *Observation) probe(ctx context.Context, source Source) {
	if source.Create == nil {
		return
	}
	// The webhook requires that the department exists, and that the user administers it.
	o.WebhookProbe = source.Create(ctx, &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: probeName},
		Spec: v1alpha1.ProjectSpec{
			Department: probeName,
			Owners:     []v1alpha1.Owner{{Contact: v1alpha1.Contact{Name: "sluice doctor", Email: "doctor@sluice.invalid"}}},
		},
	})
	o.OutsideProbe = source.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: probeName, Namespace: metav1.NamespaceDefault, Annotations: map[string]string{v1alpha1.AnnotationGPU: "1"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "probe", Image: "probe"}}},
	})
}

// probeName is the name of the objects in probes, which are never stored. A department of this name must not exist.
const probeName = "sluice-doctor-probe"

// probeTimeout is above the timeout of every webhook entry that a probe reaches.
const probeTimeout = 15 * time.Second
