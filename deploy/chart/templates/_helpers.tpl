{{- define "rota.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "rota.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "rota.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "rota.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{- define "rota.selector" -}}
app.kubernetes.io/name: rota
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "rota.labels" -}}
{{ include "rota.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{- /* Seconds that a pod is given to stop: grace + kill_grace + 10, and what a server waits before it begins. */ -}}
{{- define "rota.terminationGrace" -}}
{{- add (ceil .Values.grace) (ceil .Values.killGrace) 10 -}}
{{- end -}}

{{- define "rota.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "rota.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- /* The environment of every container; `secret` is the reference to the database's URL; `owner`: it is another role's,
       whose password is in it. */ -}}
{{- define "rota.env" -}}
{{- $root := .root -}}
- name: ROTA_DATABASE_URL
  valueFrom: {secretKeyRef: {name: {{ .secret.name }}, key: {{ .secret.key }}}}
{{- if and $root.Values.database.passwordSecret.name (not .owner) }}
- name: ROTA_DATABASE_PASSWORD_FILE
  value: /run/secrets/rota-database/{{ $root.Values.database.passwordSecret.key }}
{{- end }}
{{- with $root.Values.database.readSecret }}
{{- if .name }}
- name: ROTA_READ_URL
  valueFrom: {secretKeyRef: {name: {{ .name }}, key: {{ .key }}}}
{{- end }}
{{- end }}
{{- with $root.Values.encryption.secret }}
{{- if .name }}
- name: ROTA_ENCRYPTION_KEYS_FILE
  value: /run/secrets/rota-encryption/{{ .key }}
{{- end }}
{{- end }}
- name: ROTA_NODE_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- {name: ROTA_INSTALLATION, value: {{ required "installation: name this installation, such as production" $root.Values.installation | quote }}}
- {name: ROTA_NAMESPACE, value: {{ $root.Values.namespace | quote }}}
- {name: ROTA_POOLER, value: {{ $root.Values.database.pooler | quote }}}
- {name: ROTA_GRACE, value: {{ $root.Values.grace | quote }}}
- {name: ROTA_KILL_GRACE, value: {{ $root.Values.killGrace | quote }}}
- {name: ROTA_METRICS_HOST, value: "0.0.0.0"}
- {name: ROTA_METRICS_PORT, value: {{ $root.Values.metrics.port | quote }}}
{{- range $name, $value := $root.Values.settings }}
- {name: {{ printf "ROTA_%s" (upper $name) }}, value: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}}
{{- end }}
{{- with $root.Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "rota.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if .Values.database.passwordSecret.name }}
- {name: database-password, mountPath: /run/secrets/rota-database, readOnly: true}
{{- end }}
{{- if .Values.encryption.secret.name }}
- {name: encryption-keys, mountPath: /run/secrets/rota-encryption, readOnly: true}
{{- end }}
{{- end -}}

{{- define "rota.volumes" -}}
- {name: tmp, emptyDir: {sizeLimit: 1Gi}}
{{- if .Values.database.passwordSecret.name }}
- name: database-password
  secret: {secretName: {{ .Values.database.passwordSecret.name }}, defaultMode: 0440}
{{- end }}
{{- if .Values.encryption.secret.name }}
- name: encryption-keys
  secret: {secretName: {{ .Values.encryption.secret.name }}, defaultMode: 0440}
{{- end }}
{{- end -}}

{{- /* A Deployment: root, component, role, values, args, ports, env, volumes, mounts, preStop. */ -}}
{{- define "rota.deployment" -}}
{{- $root := .root -}}
{{- $values := .values -}}
{{- $autoscaled := dig "autoscaling" "enabled" false $values -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "rota.fullname" $root }}-{{ .component }}
  labels:
    {{- include "rota.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  {{- if not $autoscaled }}
  replicas: {{ $values.replicas }}
  {{- end }}
  revisionHistoryLimit: 5
  progressDeadlineSeconds: {{ add $root.Values.waitForSchemaSeconds 600 }}
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
  selector:
    matchLabels:
      {{- include "rota.selector" $root | nindent 6 }}
      app.kubernetes.io/component: {{ .component }}
  template:
    metadata:
      labels:
        {{- include "rota.selector" $root | nindent 8 }}
        app.kubernetes.io/component: {{ .component }}
        rota/role: {{ .role }}
        {{- with $root.Values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $values.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ include "rota.serviceAccount" $root }}
      automountServiceAccountToken: false
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $root.Values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      terminationGracePeriodSeconds: {{ add (include "rota.terminationGrace" $root) (.preStop | default 0) }}
      securityContext:
        {{- include "rota.podSecurity" $root | nindent 8 }}
      {{- if $root.Values.topologySpread.enabled }}
      topologySpreadConstraints:
        {{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
        - maxSkew: 1
          topologyKey: {{ $key }}
          whenUnsatisfiable: {{ $root.Values.topologySpread.whenUnsatisfiable }}
          labelSelector:
            matchLabels:
              {{- include "rota.selector" $root | nindent 14 }}
              app.kubernetes.io/component: {{ $.component }}
        {{- end }}
      {{- end }}
      {{- with $values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      initContainers:
        # A rollout doesn't go on before the schema fits, nor after a migration that failed: the old pods stay.
        - name: schema
          image: {{ include "rota.image" $root }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args: [version, --check, --wait, "{{ int64 $root.Values.waitForSchemaSeconds }}"]
          env:
            {{- include "rota.env" (dict "root" $root "secret" $root.Values.database.secret) | nindent 12 }}
          securityContext:
            {{- include "rota.containerSecurity" $root | nindent 12 }}
          resources: {requests: {cpu: 20m, memory: 96Mi}, limits: {memory: 256Mi}}
          volumeMounts:
            {{- include "rota.mounts" $root | nindent 12 }}
      containers:
        - name: rota
          image: {{ include "rota.image" $root }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args:
            {{- toYaml .args | nindent 12 }}
          env:
            {{- include "rota.env" (dict "root" $root "secret" $root.Values.database.secret) | nindent 12 }}
            {{- with .env }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            - {name: metrics, containerPort: {{ $root.Values.metrics.port }}}
            {{- with .ports }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          # A node that waits for its database is alive: a restart would not help it.
          startupProbe:
            httpGet: {path: /healthz, port: metrics}
            periodSeconds: 2
            failureThreshold: 90
          livenessProbe:
            httpGet: {path: /healthz, port: metrics}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 6
          readinessProbe:
            httpGet: {path: /readyz, port: metrics}
            periodSeconds: 5
            timeoutSeconds: 5
          {{- with .preStop }}
          # Until nobody sends it requests any more.
          lifecycle: {preStop: {exec: {command: [sleep, "{{ . }}"]}}}
          {{- end }}
          securityContext:
            {{- include "rota.containerSecurity" $root | nindent 12 }}
          {{- with $values.resources }}
          resources:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          volumeMounts:
            {{- include "rota.mounts" $root | nindent 12 }}
            {{- with .mounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        {{- include "rota.volumes" $root | nindent 8 }}
        {{- with .volumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end -}}
