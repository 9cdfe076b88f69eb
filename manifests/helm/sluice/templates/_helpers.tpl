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
{{- $values := deepCopy (.Values.webhook.configuration | default dict) -}}
{{- if eq .Values.certificates.issuer "CertManager" -}}
{{- /* merge would take false for an empty value. */ -}}
{{- $values = set $values "certificates" (set ($values.certificates | default dict) "issue" false) -}}
{{- end -}}
{{- toYaml (mustMergeOverwrite (include "sluice.webhook.shipped" . | fromYaml) $values) -}}
{{- end -}}
{{- define "sluice.lifecycle.configuration" -}}
{{- $values := merge (dict "gpuPodsOutside" .Values.gpuPodsOutside) (deepCopy (.Values.lifecycle.configuration | default dict)) -}}
{{- toYaml (mustMergeOverwrite (include "sluice.lifecycle.shipped" . | fromYaml) $values) -}}
{{- end -}}
{{- define "sluice.gpuagent.configuration" -}}
{{- toYaml (mustMergeOverwrite (include "sluice.gpuagent.shipped" . | fromYaml) (deepCopy (.Values.agent.configuration | default dict))) -}}
{{- end -}}
