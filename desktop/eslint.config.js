import js from '@eslint/js'
import hooks from 'eslint-plugin-react-hooks'
import tseslint from 'typescript-eslint'

export default tseslint.config(
  { ignores: ['dist', 'node_modules', 'src/contract/contract.ts'] },
  js.configs.recommended,
  ...tseslint.configs.recommendedTypeChecked,
  {
    files: ['**/*.{ts,tsx}'],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    plugins: { 'react-hooks': hooks },
    rules: {
      ...hooks.configs.recommended.rules,
      '@typescript-eslint/consistent-type-imports': 'error',
      '@typescript-eslint/no-misused-promises': ['error', { checksVoidReturn: { attributes: false } }],
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_', varsIgnorePattern: '^_' }],
      // Stores hand out functions that never use `this`.
      '@typescript-eslint/unbound-method': 'off',
      'no-restricted-globals': ['error', { name: 'fetch', message: 'Only src/link talks to the host.' }],
    },
  },
  { files: ['src/link/**', 'test/**'], rules: { 'no-restricted-globals': 'off' } },
  // Scripts for Node that drive a browser: no type information.
  {
    files: ['**/*.{js,mjs}'],
    extends: [tseslint.configs.disableTypeChecked],
    rules: { 'no-undef': 'off', 'no-restricted-globals': 'off' },
  },
)
