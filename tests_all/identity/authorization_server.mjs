import Provider from 'oidc-provider';
// A real authorization server for the tests: node authorization_server.mjs PORT RESOURCE ACCESS_TOKEN_SECONDS
const port = Number(process.argv[2]);
const issuer = `http://127.0.0.1:${port}`;
const resource = process.argv[3];
const provider = new Provider(issuer, {
  scopes: ['openid', 'offline_access', 'tools:read', 'tools:write'],
  clients: [],
  pkce: { required: () => true },
  ttl: { AccessToken: () => Number(process.argv[4] ?? 3600), RefreshToken: 86400, AuthorizationCode: 60, Interaction: 600, Session: 3600, Grant: 86400, IdToken: 3600 },
  rotateRefreshToken: true,
  clientAuthMethods: ['none', 'client_secret_basic', 'client_secret_post'],
  features: {
    devInteractions: { enabled: true },
    registration: { enabled: true },
    revocation: { enabled: true },
    introspection: { enabled: true, allowedPolicy: () => true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => resource,
      useGrantedResource: () => true,
      getResourceServerInfo: (_c, indicator) => ({ scope: 'tools:read tools:write', audience: indicator, accessTokenFormat: 'jwt', jwt: { sign: { alg: 'RS256' } } }),
    },
  },
});
provider.on('grant.success', (ctx) => console.log(`granted ${ctx.oidc.params.grant_type}`));
provider.on('server_error', (_c, e) => console.error('server_error', e));
provider.listen(port, '127.0.0.1', () => console.log(`ready ${issuer}`));
