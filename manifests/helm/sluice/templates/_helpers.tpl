{{/* The namespace is named in webhook configurations, certificates and rights, so it is always the same. */}}
{{- define "sluice.checkNamespace" -}}
{{- if ne .Release.Namespace "sluice-system" -}}
{{- fail (printf "Sluice runs in the namespace sluice-system, not in %s: add --namespace sluice-system --create-namespace" .Release.Namespace) -}}
{{- end -}}
{{- end -}}

{{/* The reference of an image: sluice.image (list . "sluice-webhook"). */}}
{{- define "sluice.image" -}}
{{- $image := (index . 0).Values.image -}}
{{- $name := index . 1 -}}
{{- with $image.registry }}{{ . }}/{{ end }}{{ $name }}{{ with $image.tag }}:{{ . }}{{ end -}}
{{- end -}}

{{/* A configuration file: the shipped one with the fields of the values in their place. A configuration whose fields
     are all comments is null. */}}
{{- define "sluice.webhook.configuration" -}}
{{- toYaml (mustMergeOverwrite (include "sluice.webhook.shipped" . | fromYaml) (deepCopy (.Values.webhook.configuration | default dict))) -}}
{{- end -}}
{{- define "sluice.lifecycle.configuration" -}}
{{- $values := merge (dict "gpuPodsOutside" .Values.gpuPodsOutside) (deepCopy (.Values.lifecycle.configuration | default dict)) -}}
{{- with .Values.workloadKinds }}{{ $values = set $values "podTemplates" . }}{{ end -}}
{{- toYaml (mustMergeOverwrite (include "sluice.lifecycle.shipped" . | fromYaml) $values) -}}
{{- end -}}
{{- define "sluice.gpuagent.configuration" -}}
{{- toYaml (mustMergeOverwrite (include "sluice.gpuagent.shipped" . | fromYaml) (deepCopy (.Values.agent.configuration | default dict))) -}}
{{- end -}}

{{/* The rules of a webhook for the kinds that the values add: sluice.addedRules (list .Values.workloadKinds (list "CREATE")). */}}
{{- define "sluice.addedRules" -}}
{{- $operations := index . 1 -}}
{{- range index . 0 }}
- apiGroups: [{{ regexReplaceAll "^[^.]*[.]" .kind "" | quote }}]
  apiVersions: [{{ .version | default "*" | quote }}]
  operations: {{ toJson $operations }}
  resources: [{{ .resource | quote }}]
  scope: Namespaced
{{- end }}
{{- end -}}
